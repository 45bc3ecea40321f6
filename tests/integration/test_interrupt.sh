#!/usr/bin/env bash
# Ctrl-C leaves a checkpoint and no process, and the resumed run ends like an undisturbed one. Two runs
# share the host.
. "$PLM_ROOT/tests/support/lib.sh"

small_corpus corpus
small_config pipeline.yaml unet
long=(--set trainer.steps=60 --set trainer.checkpoint.every=60)

plm-pipeline up pipeline.yaml --run quiet "${long[@]}" >quiet.out 2>quiet.err </dev/null &
undisturbed=$!
plm-pipeline up pipeline.yaml --run stopped "${long[@]}" >up.out 2>up.err </dev/null &
up=$!
wait_for 30 test -s stopped/trainer.jsonl
kill -INT "$up"
status=0
wait "$up" || status=$?
[ "$status" -eq 130 ] || { tail -n 40 up.err; fail "Ctrl-C ended with $status"; }
nobody_left "$PWD/stopped" || fail "a process is left after Ctrl-C"
step=$(tail -n 1 stopped/trainer.jsonl | jq .step)
[ "$step" -lt 60 ] || fail "it was over before it was interrupted"
expect 0 plm-pipeline checkpoints stopped --verify
[ -d "$(printf 'stopped/checkpoints/step_%08d' "$step")" ] || fail "no checkpoint at the step it stopped"
grep -q "stopped; .plm-pipeline up. will go on from step $step\$" up.err || fail "where it goes on is not said"
[ ! -e stopped/DONE ] || fail "DONE on an unfinished run"

expect 0 plm-pipeline up pipeline.yaml --run stopped "${long[@]}"
wait "$undisturbed" || { tail -n 40 quiet.err; fail "the run beside it failed"; }
exact_metrics quiet/trainer.jsonl >quiet.exact
exact_metrics stopped/trainer.jsonl >stopped.exact
cmp quiet.exact stopped.exact || fail "the resumed run's metrics differ"
cmp quiet/checkpoints/step_00000060/model.safetensors stopped/checkpoints/step_00000060/model.safetensors ||
  fail "the resumed run's weights differ"
