#!/usr/bin/env bash
# One of two ranks loses its card, emulated, under `up`, which restarts the ranks from the newest checkpoint. If the
# card does not come back, `up` ends and says what to do, and one rank then gives the same bits.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=2
run_undisturbed_ranks 2 whole "${four_steps[@]:?}"

# The card works again after a restart, and `up` goes on from the newest checkpoint.
set=("${four_steps[@]:?}" --set trainer.ranks=2)
PLM_EMULATED_CARD="lost_device=1 lost_after=$PLM_TMP/again/checkpoints/step_00000001 once=$PLM_TMP/once" \
  plm-pipeline up pipeline.yaml --run again "${set[@]}" >up.log 2>&1 || fail "up ended with $?: $(cat up.log)"
same_run whole again 4
grep -q "rank 1 on $(hostname): .*unknown error" again/logs/trainer.0.log || fail "nothing failed"

# It does not come back: there is one card for two ranks.
PLM_EMULATED_CARD="lost_device=1 lost_after=$PLM_TMP/gone-run/checkpoints/step_00000001 gone=$PLM_TMP/gone" \
  plm-pipeline up pipeline.yaml --run gone-run "${set[@]}" >up.log 2>&1
[ $? -eq 2 ] || fail "up with one card left: $(cat up.log)"
grep -q "ranks 0 and 1 on $(hostname) use the same GPU" up.log || fail "no reason: $(cat up.log)"
grep -q 'trainer.ranks' up.log || fail "no hint: $(cat up.log)"
same_checkpoints whole gone-run
[ "$(newest_step gone-run)" -ge 1 ] || fail "no checkpoint"
PLM_EMULATED_CARD="lost_device=1 gone=$PLM_TMP/gone" plm-pipeline up pipeline.yaml --run gone-run "${set[@]}" \
  --set trainer.ranks=1 >up.log 2>&1 || fail "the resume by one rank: $(cat up.log)"
same_run whole gone-run 4
