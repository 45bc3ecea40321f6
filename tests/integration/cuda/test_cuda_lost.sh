#!/usr/bin/env bash
# The emulated card is lost in the middle of a run, at several moments: the trainer says so and exits with 1, every
# checkpoint is intact and has the bits of an undisturbed run, and a resume gives these bits to the end. `up` restarts the
# trainer; if the card does not come back, `up` ends with the reason.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated
settings=(--set trainer.device=cuda --set trainer.steps=4 --set trainer.checkpoint.every=1)
log=$PLM_TMP/trainer.log

PLM_EMULATED_TRACE=$PLM_TMP/trace run_undisturbed whole "${settings[@]}"
works=$(sed -n 's/^works //p' trace | tail -n 1)
[ "${works:-0}" -gt 100 ] || fail "the run had $works work items"

for part in 5 80; do # percent of the works
  run=lost-$part
  : >"$log"
  start_packer $run
  PLM_EMULATED_CARD=lost=$((works * part / 100)) run_trainer $run "${settings[@]}"
  [ $? -eq 1 ] || fail "a trainer whose card was lost at $part % ended otherwise"
  tail -n 2 "$log" | matches '^plm-trainer: device 0: .* failed: unknown error' || fail "at $part %: $(cat "$log")"
  tail -n 1 "$log" | matches 'grep Xid.* needs a reset or a restart of the machine' || fail "no hint: $(cat "$log")"
  same_checkpoints whole $run
  [ $part -lt 80 ] || [ "$(newest_step $run)" -ge 1 ] || fail "no checkpoint before $part %"
  [ $part -lt 80 ] || run_trainer $run "${settings[@]}" || fail "the resume ended with $?"
  stop_packer
  [ $part -lt 80 ] || same_run whole $run 4
done

# The card fails again and again, and `up` goes on from the newest checkpoint each time.
PLM_EMULATED_CARD=lost=$((works * 60 / 100)) plm-pipeline up pipeline.yaml --run again "${settings[@]}" >up.log 2>&1 ||
  fail "up ended with $?: $(cat up.log)"
same_run whole again 4
[ "$(grep -c 'unknown error' again/logs/trainer.0.log)" -ge 1 ] || fail "nothing failed"

# It does not come back.
PLM_EMULATED_CARD="lost=$((works * 60 / 100)) gone=$PLM_TMP/gone" plm-pipeline up pipeline.yaml --run gone-run \
  "${settings[@]}" >up.log 2>&1
[ $? -eq 2 ] || fail "up without the card: $(cat up.log)"
grep -q 'no CUDA device 0: no CUDA-capable device is detected' up.log || fail "no reason: $(cat up.log)"
same_checkpoints whole gone-run
[ "$(newest_step gone-run)" -ge 1 ] || fail "no checkpoint"
plm-pipeline up pipeline.yaml --run gone-run "${settings[@]}" >up.log 2>&1 || fail "the resume: $(cat up.log)"
same_run whole gone-run 4
