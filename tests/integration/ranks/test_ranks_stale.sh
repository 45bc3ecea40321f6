#!/usr/bin/env bash
# One of two ranks sends old values of what it owns when rank 0 collects a checkpoint, because the engine that moves
# them is faulty: rank 0 says so, all ranks exit with 1, the checkpoint is not published, and the resume gives the bits
# of an undisturbed run. On CPUs, and on devices (emulated), whose memory travels through the host's.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
export PLM_CUDA_LIBRARY=$emulated PLM_EMULATED_DEVICES=2 PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
log=$PLM_TMP/trainer.log
engine=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so
set=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.batch_tokens=128 --set trainer.shares=2
  --set trainer.steps=2 --set trainer.checkpoint.every=1 --set model.architecture=transformer --set model.num_hidden_layers=1)

for device in cpu cuda; do
  send=0 # the first thing; another one on CPUs: tests/trainer/ranks/test_two_ranks.sh
  [ $device = cpu ] || send=3
  whole=$PLM_TMP/whole-$device
  start_packer "$whole"
  run_ranks 1 "$whole" "${set[@]}" --set trainer.device=$device || fail "one rank ended with $?: $(cat "$log")"
  stop_packer
  run=$PLM_TMP/stale-$device-$send
  : >"$log"
  start_packer "$run"
  PLM_MPI_LIBRARY=$PLM_BUILD/tests/lib/stale_engine.so PLM_STALE_ENGINE=$engine PLM_STALE_RANK=1 PLM_STALE_SEND=$send \
    run_ranks 2 "$run" "${set[@]}" --set trainer.device=$device
  [ $? -eq 1 ] || fail "old values on $device ended otherwise: $(cat "$log")"
  [ "$(grep -c "^plm-trainer: rank 0 on .*: what rank 1 sent for the checkpoint arrived with other bytes" "$log")" -eq 1 ] ||
    fail "not one message says so: $(cat "$log")"
  [ "$(newest_step "$run")" -eq 1 ] || fail "the checkpoints are $(ls "$run/checkpoints")"
  for file in model ema optimizer; do
    cmp {"$whole","$run"}/checkpoints/step_00000001/$file.safetensors || fail "checkpoint 1 has another $file"
  done
  run_ranks 2 "$run" "${set[@]}" --set trainer.device=$device || fail "the resume ended with $?: $(cat "$log")"
  stop_packer
  same_run "$whole" "$run" 2
done
