#!/usr/bin/env bash
# trainer.stop_when ends a run at the checkpoint at which the evaluator has reported so many without a better one: with
# one rank and with two at the same step and with the same bits, again when it is started again, and not before. The
# reports are written here, so that they do not depend on the speed of an evaluator.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config transformer
common=("${rank_settings[@]}" --set trainer.steps=40 --set trainer.checkpoint.every=2
  --set trainer.schedule.warmup_steps=2 --set trainer.schedule.cooldown_steps=2)

# report RUN VALUE...: what an evaluator says of the checkpoints 0, 2, 4, ...
report() {
  local run=$1 step=0 value
  shift
  mkdir -p "$run"
  for value in "$@"; do
    echo "{\"step\": $step, \"split\": \"valid\", \"loss\": $value}"
    step=$((step + 2))
  done >"$run/evaluator.jsonl"
}

# ends RANKS RUN STEP [ARG...]: the run must be complete at this step
ends() {
  local ranks=$1 run=$2 step=$3
  shift 3
  : >"$PLM_TMP/trainer.log"
  run_ranks "$ranks" "$run" "${common[@]}" "$@" || fail "$run with $ranks ranks ended with $?: $(cat "$PLM_TMP/trainer.log")"
  grep -q "complete at step $step$" "$PLM_TMP/trainer.log" || fail "$run is not complete at step $step: $(cat "$PLM_TMP/trainer.log")"
  [ "$(newest_step "$run")" -eq "$step" ] || fail "the newest checkpoint of $run is $(newest_step "$run")"
  [ -e "$run/DONE" ] || fail "$run has no DONE"
}

for ranks in 1 2; do
  run=$PLM_TMP/loss-$ranks
  report "$run" 3 2 2.5 2 2.1 1
  start_packer "$run"
  ends "$ranks" "$run" 8 --set trainer.stop_when.patience=3
  grep -q 'none of the last 3 evaluated checkpoints has a better loss than 2 (step 2)$' "$PLM_TMP/trainer.log" ||
    fail "nobody says why $run ends: $(cat "$PLM_TMP/trainer.log")"
  before=$(sha256sum "$run"/checkpoints/*/model.safetensors)
  ends "$ranks" "$run" 8 --set trainer.stop_when.patience=3 # once more: nothing is trained
  rm "$run/DONE" # as if it had been killed before it was written
  ends "$ranks" "$run" 8 --set trainer.stop_when.patience=3
  [ "$(sha256sum "$run"/checkpoints/*/model.safetensors)" = "$before" ] || fail "$run was changed after its end"
  ends "$ranks" "$run" 14 --set trainer.steps=14 --set trainer.stop_when.patience=4 # the best is now that of step 10
  grep -q 'the run continues after step 8: trainer.stop_when.patience was raised from 3 to 4$' "$PLM_TMP/trainer.log" ||
    fail "nobody says that $run continues: $(cat "$PLM_TMP/trainer.log")"
  stop_packer
done

same_run "$PLM_TMP/loss-1" "$PLM_TMP/loss-2" 8
same_run "$PLM_TMP/loss-1" "$PLM_TMP/loss-2" 14
