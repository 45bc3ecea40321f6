#!/usr/bin/env bash
# One of two ranks loses its card in the middle of a run, emulated: one message names the rank, its host and the card,
# all ranks exit with 1, every checkpoint is intact, and a resume gives the bits of an undisturbed run.
. "$PLM_ROOT/tests/support/trainer.sh"
. "$PLM_ROOT/tests/support/emulated_cuda.sh"
. "$PLM_ROOT/tests/support/ranks.sh"
export PLM_CUDA_LIBRARY=$emulated PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
export PLM_EMULATED_DEVICES=2
log=$PLM_TMP/trainer.log
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

for rank in 0 1; do
  run=$PLM_TMP/lost-$rank
  : >"$log"
  start_packer "$run"
  PLM_EMULATED_CARD="lost_after=$run/checkpoints/step_00000001 lost_device=$rank" start_ranks 2 "$run" "${set[@]}"
  first_rank >/dev/null
  mapfile -t pids < <(ranks_of "$trainer_pid")
  wait "$trainer_pid"
  [ $? -eq 1 ] || fail "the ranks ended otherwise when rank $rank lost its card: $(cat "$log")"
  no_rank_left "${pids[@]}"
  [ "$(grep -c "^plm-trainer: rank $rank on $(hostname): .*device $rank.* failed: unknown error" "$log")" -eq 1 ] ||
    fail "not one message names rank $rank, its host and its card: $(cat "$log")"
  [ "$(grep -c '^plm-trainer: rank ' "$log")" -eq 1 ] || fail "more than one rank says what failed: $(cat "$log")"
  grep -q 'grep Xid.* needs a reset or a restart of the machine' "$log" || fail "no hint: $(cat "$log")"
  same_checkpoints "$run"
  [ "$(newest_step "$run")" -ge 1 ] || fail "no checkpoint"
  run_ranks 2 "$run" "${set[@]}" || fail "the resume ended with $?"
  stop_packer
  same_run "$PLM_TMP/whole" "$run" 4
done
