#!/usr/bin/env bash
# One of two ranks loses its card, emulated, under `up`, which restarts the ranks from the newest checkpoint. If the
# card does not come back, `up` ends and says what to do, and one rank then gives the same bits.
. "$PLM_ROOT/tests/support/trainer.sh"
. "$PLM_ROOT/tests/support/emulated_cuda.sh"
. "$PLM_ROOT/tests/support/ranks.sh"
export PLM_CUDA_LIBRARY=$emulated PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
export PLM_EMULATED_DEVICES=2
set=(--set trainer.shares=2 --set trainer.micro_batch_tokens=64 --set trainer.batch_tokens=128 --set trainer.steps=4
  --set trainer.checkpoint.every=1 --set trainer.device=cuda --set model.architecture=transformer)

start_packer "$PLM_TMP/whole"
run_ranks 2 "$PLM_TMP/whole" "${set[@]}" || fail "the undisturbed run ended with $?"
stop_packer

# same_checkpoints RUN: every checkpoint verifies and has the bits of the undisturbed run
same_checkpoints() {
  local folder name file
  for folder in "$1"/checkpoints/step_*; do
    [ -e "$folder" ] || continue
    plm-pipeline checkpoints "$folder" --verify >verify.log 2>&1 || fail "$folder is not intact: $(cat verify.log)"
    name=$(basename "$folder")
    for file in model ema optimizer; do
      cmp "whole/checkpoints/$name/$file.safetensors" "$folder/$file.safetensors" || fail "$folder has other bits"
    done
  done
}

# The card works again after a restart, and `up` goes on from the newest checkpoint.
set+=(--set trainer.ranks=2)
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
same_checkpoints gone-run
[ "$(newest_step gone-run)" -ge 1 ] || fail "no checkpoint"
PLM_EMULATED_CARD="lost_device=1 gone=$PLM_TMP/gone" plm-pipeline up pipeline.yaml --run gone-run "${set[@]}" \
  --set trainer.ranks=1 >up.log 2>&1 || fail "the resume by one rank: $(cat up.log)"
same_run whole gone-run 4
