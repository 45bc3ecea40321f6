# shellcheck shell=bash
# Ranks on emulated devices, which exchange by an emulated NCCL. Sourced; the test says how many devices there are
# (PLM_EMULATED_DEVICES).
. "${PLM_ROOT:?}/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
export PLM_CUDA_LIBRARY=${emulated:?} PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
# shellcheck disable=SC2034 # for the test
log=$PLM_TMP/trainer.log

# Settings for a run of four steps with a checkpoint after each. One rank and two compute it with the same bits.
# shellcheck disable=SC2034 # for the test
four_steps=(--set trainer.shares=2 --set trainer.micro_batch_tokens=64 --set trainer.batch_tokens=128
  --set trainer.steps=4 --set trainer.checkpoint.every=1 --set trainer.device=cuda --set model.architecture=transformer)
