#!/usr/bin/env bash
# An empty split is the error of the stage that asks for it: at once, with its name, never retried,
# and never taken for a fault of the checkpoints. A corpus smaller than one batch is legal.
. "$PLM_ROOT/tests/support/lib.sh"

small_fasta few.fasta 3
plm-pipeline ingest few.fasta --corpus corpus --split train=1 -q
small_config pipeline.yaml transformer

# Four chunks a step from two an epoch; each line of a finished run has all of the evaluator's fields.
expect 2 plm-pipeline up pipeline.yaml
says err 'split valid'
[ "$(wc -l <run/trainer.jsonl)" -eq 12 ] || fail "training did not go on"
[ ! -s run/evaluator.jsonl ] || fail "a checkpoint was blamed"
jq -e '.cursor.chunks == 48 and .cursor.epoch_totals == [range(24) | 2]' \
  run/checkpoints/step_00000012/trainer.json >/dev/null || fail "epochs were not passed as they should"

plm-pipeline ingest few.fasta --corpus only-valid --split valid=1 -q
SECONDS=0
expect 2 plm-pipeline up pipeline.yaml --set run=run2 --set corpus=only-valid
says err 'split train'
[ "$SECONDS" -lt 10 ] || fail "an empty split was tried again"
jq -e '.step == 0 and .loss > 0 and .lag_steps == 0 and .seconds > 0' run2/evaluator.jsonl >/dev/null ||
  fail "step 0 is evaluated, with every field"
