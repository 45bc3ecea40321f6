#!/usr/bin/env bash
# Neither the number of packers nor their deaths change a run: one packer, two, and two that are killed
# three times each give the same exact metrics and the same final checkpoint.
. "$PLM_ROOT/tests/support/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet
common=(--set trainer.steps=30 --set trainer.checkpoint.every=30 --set packer.restart=always)

expect 0 plm-pipeline up pipeline.yaml --run one "${common[@]}"
expect 0 plm-pipeline up pipeline.yaml --run two "${common[@]}" --scale packer=2

plm-pipeline up pipeline.yaml --run killed "${common[@]}" --scale packer=2 >up.out 2>up.err </dev/null &
up=$!
kills=0
for _ in 1 2 3; do # after a fifth death in ten minutes a packer is not started again
  pids=
  for _ in $(seq 100); do
    kill -0 "$up" 2>/dev/null || break 2
    pids=$(plm-pipeline ps --run killed --json 2>/dev/null |
      jq -r '.[] | select(.stage == "packer" and .ready) | .pid' 2>/dev/null || true)
    [ -n "$pids" ] && break
    sleep 0.1
  done
  for pid in $pids; do
    kill -KILL "$pid" 2>/dev/null && kills=$((kills + 1))
  done
  sleep 0.3
done
wait "$up" || { tail -n 40 up.err >&2; fail "up failed although packers restart"; }
[ "$kills" -gt 0 ] || fail "no packer was ever killed"

for run in one two killed; do exact_metrics "$run/trainer.jsonl" >"$run.exact"; done
cmp one.exact two.exact || fail "two packers give other metrics than one"
cmp one.exact killed.exact || fail "killed packers change the metrics"
for run in two killed; do
  for file in model.safetensors optimizer.safetensors; do
    cmp "one/checkpoints/step_00000030/$file" "$run/checkpoints/step_00000030/$file" ||
      fail "$file differs in $run"
  done
done
