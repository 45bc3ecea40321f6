#!/usr/bin/env bash
# trainer.stop_when in a whole run: the trainer learns from the evaluator's reports that nothing becomes better, because
# the learning rates are 0, and ends the run long before its last step. The evaluator reports the last checkpoint too.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config transformer
no_rates=(--set trainer.optimizer.lr_hidden=0 --set trainer.optimizer.lr_embed=0 --set trainer.optimizer.lr_head=0
  --set trainer.optimizer.lr_scalar=0)
expect 0 plm-pipeline up pipeline.yaml "${no_rates[@]}" --set trainer.steps=1000000 --set trainer.checkpoint.every=2 \
  --set trainer.threads=1 --set trainer.checkpoint.keep_last=3 --set evaluator.max_tokens=1000 \
  --set trainer.stop_when.patience=2
last=$(newest_step run)
{ [ "$last" -ge 4 ] && [ "$last" -lt 1000000 ]; } || fail "the run ended at step $last"
[ "$(jq -r .step run/DONE)" = "$last" ] || fail "DONE: $(cat run/DONE)"
grep -q 'trainer.stop_when: none of the last [0-9]* evaluated checkpoints has a loss below' run/logs/trainer.*.log ||
  fail "nobody says why the run ended"
jq -s -e --argjson last "$last" '[.[] | select(.split == "valid")] | length >= 3 and .[-1].step == $last' \
  run/evaluator.jsonl >/dev/null || fail "the last checkpoint was not evaluated: $(tail -n 2 run/evaluator.jsonl)"
