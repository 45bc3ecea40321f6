#!/usr/bin/env bash
# trainer.stop_when in a whole run: the trainer learns from the evaluator's reports that nothing becomes better, because
# the learning rates are 0, and ends the run long before its last step. The evaluator reports the last checkpoint too.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config transformer
no_rates=(--set trainer.optimizer.lr_hidden=0 --set trainer.optimizer.lr_embed=0 --set trainer.optimizer.lr_head=0
  --set trainer.optimizer.lr_scalar=0)
settings=("${no_rates[@]}" --set trainer.steps=1000000 --set trainer.checkpoint.every=2 --set trainer.threads=1
  --set trainer.checkpoint.keep_last=3 --set evaluator.max_tokens=1000 --set trainer.stop_when.patience=2
  --set trainer.schedule.warmup_steps=0 --set trainer.schedule.cooldown_steps=0)
expect 0 plm-pipeline up pipeline.yaml "${settings[@]}"
last=$(newest_step run)
{ [ "$last" -ge 4 ] && [ "$last" -lt 1000000 ]; } || fail "the run ended at step $last"
[ "$(jq -r .step run/DONE)" = "$last" ] || fail "DONE: $(cat run/DONE)"
grep -q 'trainer.stop_when: none of the last [0-9]* evaluated checkpoints has a better loss than' run/logs/trainer.*.log ||
  fail "nobody says why the run ended"
jq -s -e --argjson last "$last" '[.[] | select(.split == "valid")] | length >= 3 and .[-1].step == $last' \
  run/evaluator.jsonl >/dev/null || fail "the last checkpoint was not evaluated: $(tail -n 2 run/evaluator.jsonl)"
jq -e '.stopped_by == "stop_when" and .metric == "loss" and .patience == 2' run/DONE >/dev/null ||
  fail "DONE does not say why: $(cat run/DONE)"

# stays_complete COMMAND...: it ends at once, and changes neither DONE nor the checkpoints
stays_complete() {
  local before
  before=$(cat run/DONE; ls run/checkpoints)
  expect 0 "$@"
  [ "$(cat run/DONE; ls run/checkpoints)" = "$before" ] || fail "$* changed the run: $(cat run/DONE; ls run/checkpoints)"
}
stays_complete plm-pipeline up pipeline.yaml evaluator "${settings[@]}"
# a better report that comes after the decision does not change it, nor do more steps or less patience
echo "{\"step\": $last, \"split\": \"valid\", \"loss\": 0.001}" >>run/evaluator.jsonl
stays_complete plm-pipeline up pipeline.yaml "${settings[@]}"
stays_complete plm-trainer -c pipeline.yaml --run run "${settings[@]}" --set trainer.steps=2000000
stays_complete plm-trainer -c pipeline.yaml --run run "${settings[@]}" --set trainer.stop_when.patience=1
mkdir run-sweep
cp -r run run-sweep/run
expect 0 plm-pipeline sweep pipeline.yaml "${settings[@]}"
says err 'is complete$'
cmp run/DONE run-sweep/run/DONE || fail "the sweep continued a complete run"

# If the checkpoint that DONE names is damaged, the reports decide at the one before it.
before=$(find run/checkpoints -name 'step_*' -printf '%f\n' | sort | tail -n 2 | sed -n '1s/step_0*//p')
echo damaged >"run/checkpoints/$(printf 'step_%08d' "$last")/model.safetensors"
for report in '0 1' '1 2' '2 2'; do
  echo "{\"step\": ${report% *}, \"split\": \"valid\", \"loss\": ${report#* }}"
done >run/evaluator.jsonl
expect 0 plm-trainer -c pipeline.yaml --run run "${settings[@]}"
says err "complete at step $before\$"
[ "$(jq -r .step run/DONE)" = "$before" ] || fail "DONE is about the damaged checkpoint: $(cat run/DONE)"
# With more patience, the run continues.
expect 0 plm-pipeline up pipeline.yaml "${settings[@]}" --set trainer.stop_when.patience=1000 --set "trainer.steps=$((last + 2))"
[ "$(newest_step run)" -eq $((last + 2)) ] || fail "the run ended at step $(newest_step run)"
jq -e --argjson last "$last" '.step == $last + 2 and (has("stopped_by") | not)' run/DONE >/dev/null ||
  fail "DONE of all steps: $(cat run/DONE)"
