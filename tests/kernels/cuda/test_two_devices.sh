#!/usr/bin/env bash
# Two ranks on two devices, by NCCL, give the bits of two ranks that exchange through the host's memory, and those of one
# rank that resumes their run. The larger tests/integration/cuda/test_ranks_cuda*.sh cover more ranks and failures. Emulated.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
settings=("${rank_settings[@]:?}" "${four_steps[@]:?}" --set trainer.steps=2
  --set model.hidden_size=128 --set model.num_attention_heads=2) # the emulation computes each product

# train NAME RANKS: a whole run
train() {
  start_packer "$PLM_TMP/$1"
  run_ranks "$2" "$PLM_TMP/$1" "${settings[@]}" || fail "$1 ended with $?: $(tail -5 "${log:?}")"
  stop_packer
}

PLM_EMULATED_DEVICES=2 PLM_EMULATED_NCCL=1 train nccl 2
PLM_EMULATED_DEVICES=1 PLM_COLLECTIVE=mpi train staged 2
same_run "$PLM_TMP/nccl" "$PLM_TMP/staged" 2

cp -r "$PLM_TMP/nccl" "$PLM_TMP/alone"
rm -r "$PLM_TMP/alone/checkpoints/step_00000002" "$PLM_TMP/alone/DONE"
ln -sfn step_00000001 "$PLM_TMP/alone/checkpoints/latest"
PLM_EMULATED_DEVICES=1 train alone 1
same_run "$PLM_TMP/nccl" "$PLM_TMP/alone" 2
jq -e .exact "$PLM_TMP/alone/checkpoints/latest/trainer.json" >/dev/null || fail "one rank does not continue exactly"
