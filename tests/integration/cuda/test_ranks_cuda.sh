#!/usr/bin/env bash
# Four ranks on devices, in a group or in two, give the same bits, also when one or two ranks resume their run. The
# devices and NCCL are emulated. An exchange that is staged through the host: tests/kernels/cuda/test_two_devices.sh.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=4
common=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.device=cuda --set trainer.steps=2
  --set trainer.checkpoint.every=1 --set trainer.batch_tokens=256 --set model.architecture=transformer --set model.num_hidden_layers=1)

# train NAME RANKS [ARG...]: a whole run
train() {
  local name=$1 ranks=$2
  shift 2
  start_packer "$PLM_TMP/$name" "$@"
  run_ranks "$ranks" "$PLM_TMP/$name" "${common[@]}" "$@" || fail "$name ended with $?: $(tail -5 "$log")"
  stop_packer
}

PLM_EMULATED_NCCL=2 train four 4
jq -e '.exact and .resolved.device == "cuda" and .resolved.ranks == 4' "$PLM_TMP/four/checkpoints/latest/trainer.json" >/dev/null ||
  fail "four ranks on devices are not exact"
PLM_EMULATED_NCCL=3 PLM_RANK_GROUP=2 train groups 4
same_run "$PLM_TMP/four" "$PLM_TMP/groups" 2

# Resumed by other numbers of ranks: rank 0 reads the moments and sends them to the other devices, and Muon's
# batches have other sizes.

# continue_with NAME RANKS: this many ranks make step 2 from the checkpoint of step 1, to the same bits
continue_with() {
  local name=$1 ranks=$2 file
  local moved=$PLM_TMP/$name-by-$ranks
  cp -r "$PLM_TMP/$name" "$moved"
  rm -r "$moved/checkpoints/step_00000002" "$moved/DONE"
  ln -sfn step_00000001 "$moved/checkpoints/latest"
  : >"$log"
  train "$name-by-$ranks" "$ranks"
  ! grep -q "not bit-exact" "$log" || fail "$ranks ranks do not continue exactly: $(cat "$log")"
  for file in model ema optimizer; do
    cmp "$PLM_TMP/$name/checkpoints/step_00000002/$file.safetensors" "$moved/checkpoints/step_00000002/$file.safetensors" ||
      fail "$file differs after $ranks ranks have continued the run $name"
  done
}
PLM_EMULATED_NCCL=1 continue_with four 2
continue_with four 1
