#!/usr/bin/env bash
# A full disk under the evaluator and the supervisor: both say so and end with 1, nothing is damaged or
# left behind, and once there is room again the same command completes the run.
#
# The disk is a small tmpfs in a mount namespace of this script, as in test_full_disk.sh.
. "${PLM_ROOT:?}/tests/support/shell/own_mounts.sh"
. "${PLM_ROOT:?}/tests/support/shell/lib.sh"
small_corpus corpus
small_config pipeline.yaml transformer
many=(--set trainer.checkpoint.every=1 --set trainer.checkpoint.keep_last=100)
expect 0 plm-pipeline up pipeline.yaml --run reference "${many[@]}"

disk=$PLM_TMP/disk
mkdir "$disk"
mount -t tmpfs -o size=64m none "$disk" || fail "no tmpfs in the namespace"
fill() { # takes all that is left, to the last page
  cat /dev/zero >"$disk/filler" 2>/dev/null || true
  [ "$(df --output=avail "$disk" | tail -n 1 | tr -d ' ')" = 0 ] || fail "the disk is not full"
}
make_room() { rm "$disk/filler"; }
whole_lines() { # FILE: there is none, or it has whole lines only
  [ ! -s "$1" ] || { jq -es . "$1" >/dev/null && [ -z "$(tail -c 1 "$1")" ]; }
}
nothing_unfinished() { # RUN: no temporary file, and all that can be read is whole
  local left
  left=$(find "$1" -name '*.tmp*' -o -name '.tmp-*' -o -name '*.new')
  [ -z "$left" ] || fail "unfinished files are left: $left"
  for name in trainer evaluator; do
    whole_lines "$1/$name.jsonl" || fail "$name.jsonl has half a line: $(tail -n 2 "$1/$name.jsonl")"
  done
  for name in pipeline.yaml endpoints.json DONE; do
    [ ! -e "$1/$name" ] || [ -s "$1/$name" ] || fail "$name is empty"
  done
}
same_results() { # RUN: the exact metrics and evaluations are those of the reference
  diff <(exact_metrics reference/trainer.jsonl) <(exact_metrics "$1/trainer.jsonl") || fail "the metrics differ"
  diff <(evaluations reference) <(evaluations "$1") || fail "the evaluations differ"
}
evaluations() { jq -c 'del(.seconds, .lag_steps, .time)' "$1/evaluator.jsonl"; }

# ---- the evaluator: the disk fills up after its first report
run=$disk/evaluated
cp -a reference "$run"
rm "$run/evaluator.jsonl"
plm-packer -c pipeline.yaml --run "$run" 2>packer.log &
packer=$!
stopping_at 'write:*/evaluator.jsonl#2' plm-evaluator -c pipeline.yaml --run "$run" "${many[@]}" 2>err &
evaluator=$!
until_stopped $evaluator || fail "the evaluator ended early: $(cat err)"
fill
kill -CONT $evaluator
code=0
wait $evaluator || code=$?
[ "$code" -eq 6 ] || fail "the evaluator on a full disk ended with $code: $(cat err)"
says err 'No space left on device'
nothing_unfinished "$run"
# nor does it start on one
expect 6 plm-evaluator -c pipeline.yaml --run "$run" "${many[@]}"
says err 'No space left on device'
nothing_unfinished "$run"
make_room
expect 0 plm-evaluator -c pipeline.yaml --run "$run" "${many[@]}"
same_results "$run"
kill $packer
drained $packer "the packer"
rm -r "$run"

# ---- the supervisor: no room at the start
run=$disk/run
fill
expect 1 plm-pipeline up pipeline.yaml --run "$run" "${many[@]}"
says err 'No space left on device'
expect 1 plm-pipeline up -d pipeline.yaml --run "$run" "${many[@]}"
says err 'No space left on device'
nothing_unfinished "$run"
make_room

# ---- the supervisor: the disk fills up during the run; what fails is named, and `up` continues
long=(--set trainer.steps=120 --set trainer.checkpoint.every=2 --set trainer.checkpoint.keep_last=10)
stopping_at 'write:*/trainer.jsonl#20' plm-pipeline up pipeline.yaml --run "$run" "${long[@]}" --set trainer.restart=no \
  --set trainer.checkpoint.max_failed_checkpoints=2 >up.out 2>up.err </dev/null &
up=$!
wait_for 60 test -s "$run/evaluator.jsonl"
trainer=$(jq .pid "$run/trainer.lock")
until_stopped "$trainer" || fail "the trainer ended early: $(cat up.err)"
fill
expect 0 plm-pipeline ps --run "$run"
kill -CONT "$trainer"
code=0
wait $up || code=$?
[ "$code" -eq 6 ] || fail "up on a full disk ended with $code: $(cat up.err)"
says up.err 'failed: trainer.0 exited with 6'
says up.err 'No space left on device'
nothing_unfinished "$run"
make_room
expect 0 plm-pipeline checkpoints "$run" --verify
expect 0 plm-pipeline up pipeline.yaml --run "$run" "${long[@]}"
plm-pipeline up pipeline.yaml --run undisturbed "${long[@]}" 2>err || fail "the run to compare with: $(cat err)"
diff <(exact_metrics undisturbed/trainer.jsonl) <(exact_metrics "$run/trainer.jsonl") || fail "the metrics differ"

# ---- the log of a stage that fails on a full disk may lack the reason, so the supervisor gives it
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin/
printf '#!/bin/sh\ncat /dev/zero >%s/filler 2>%s/why\nexit 1\n' "$disk" "$PLM_TMP" >bin/plm-trainer
chmod +x bin/plm-trainer
expect 1 bin/plm-pipeline up pipeline.yaml trainer --run "$disk/mute" --set trainer.restart=no
says err 'failed: trainer.0 exited with 1'
says err 'the disk of .*trainer.0.log is full'
