#!/usr/bin/env bash
# An empty split is an error of the stage that reads it: the message names the split, the stage is not
# started again, and no checkpoint is blamed. A corpus smaller than one batch is legal.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_fasta few.fasta 3
plm-pipeline ingest few.fasta --corpus corpus --split train=1 -q
small_config pipeline.yaml transformer

# A step has four chunks, an epoch two.
expect 2 plm-pipeline up pipeline.yaml
says err 'split valid'
[ "$(wc -l <run/trainer.jsonl)" -eq 12 ] || fail "training did not continue"
[ ! -s run/evaluator.jsonl ] || fail "a checkpoint was blamed"
jq -e '.cursor | .chunks == 48 and [.epoch, .window, .window_begin, .window_chunk] == [24, 0, 0, 0]' \
  run/checkpoints/step_00000012/trainer.json >/dev/null || fail "epochs were counted wrongly"

plm-pipeline ingest few.fasta --corpus only-valid --split valid=1 -q
expect 2 plm-pipeline up pipeline.yaml --set run=run2 --set corpus=only-valid
says err 'split train'
! grep 'restarting it' err >&2 || fail "a stage with an empty split was started again"
# The supervisor stops the evaluator when the trainer has failed, which may be before it has evaluated step 0.
plm-pipeline up pipeline.yaml evaluator packer --set run=run2 --set corpus=only-valid >again.log 2>&1 </dev/null &
up=$!
wait_for 30 grep -q 'packer.0 is ready' again.log # a signal before bash has executed `up` would be lost
wait_for 30 test -s run2/evaluator.jsonl
kill "$up"
drained "$up" up
jq -e '.step == 0 and .loss > 0 and .lag_steps == 0 and .seconds > 0' run2/evaluator.jsonl >/dev/null ||
  fail "step 0 is evaluated, with every field"
