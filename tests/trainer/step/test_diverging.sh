#!/usr/bin/env bash
# Real trainings on the bundled protein families: with learning rates that are 100 times too high, with and without
# clipping, the trainer warns and says what holds, once for each sign; a healthy one has nothing to say.
. "$PLM_ROOT/tests/support/shell/trainer.sh"

"$PLM_BIN/plm-pipeline" ingest "$PLM_ROOT/tests/data/families.fasta.gz" --corpus corpus -q || fail "ingest"
trainer_config transformer
sed -i 's|threads: 2|threads: 1|' pipeline.yaml # two would only wait for each other with so small a model
high=()
for group in hidden:0.5 embed:1 head:1 scalar:1; do
  high+=(--set "trainer.optimizer.lr_${group%:*}=${group#*:}")
done
steps=230 # the loss is judged from step 2 * 5 + 201 on
train() { # RUN ARGUMENTS…
  local run=$1 status
  shift
  start_packer "$run"
  "$PLM_BIN/plm-trainer" -c pipeline.yaml --run "$run" --set trainer.steps=$steps --set trainer.schedule.cooldown_steps=0 \
    --set trainer.checkpoint.every=100000 --set model.hidden_size=32 --set trainer.clip.auto_percentile=0 \
    --set trainer.ema=0 --set trainer.optimizer.momentum_warmup_steps=0 "$@" >"$run.log" 2>&1
  status=$?
  stop_packer
  [ "$status" -eq 0 ] || fail "$run ended with $status"
}
told() { grep -c "warning: step [0-9]*: $2" "$1.log"; } # RUN TEXT

train healthy
[ "$(grep -c 'warning: step' healthy.log)" -eq 0 ] || fail "a healthy training warns"
jq -e -s --argjson steps $steps 'length == $steps and all(has("warning") | not)' healthy/trainer.jsonl >/dev/null ||
  fail "a healthy training has signs"

train unclipped "${high[@]}"
train clipped "${high[@]}" --set trainer.clip.norm=1
for run in unclipped clipped; do
  # the word of each step is that of what holds
  jq -e -s 'any(.warning == "gradient is 0") and all(.[];
      (.warning == "gradient is 0") == (.grad_norm == 0 and .loss != null))' "$run/trainer.jsonl" >/dev/null ||
    fail "the signs of $run: $(jq -c '{step, loss, grad_norm, warning}' "$run/trainer.jsonl" | tail -n 3)"
  [ "$(told "$run" 'the gradient is exactly 0')" -eq 1 ] || fail "$run: the gradient is told of more than once"
done
above='the loss (.* in the last steps) is above the entropy of the composition'
[ "$(told unclipped "$above")" -eq 1 ] || fail "the loss is not told of once"
[ "$(told clipped "$above")" -le 1 ] || fail "the loss is told of more than once" # it stays near the composition
grep -q 'lower learning rates or with trainer.clip$' unclipped.log || fail "the remedy without clipping"
grep -q 'lower learning rates$' clipped.log && ! grep -q 'or with trainer.clip' clipped.log || fail "the remedy with clipping"
