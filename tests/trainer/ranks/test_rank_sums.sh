#!/usr/bin/env bash
# The exchange of gradients gives the bits of the tree over the ranks, however they are grouped, on every
# device, with and without rounding to bf16.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
tool=$PLM_BUILD/tests/trainer/ranks/sums/tool_rank_sums
export PLM_MPI_LIBRARY=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so
export PLM_CUDA_LIBRARY=$PLM_BUILD/tests/lib/libplm_cuda_emulated.so
export PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
export PLM_EMULATED_DEVICES=4

# right RANKS ARG...: the tool finds every bit
right() {
  local ranks=$1 log=$PLM_TMP/sums.log
  shift
  tool_on_ranks "$ranks" "$tool" "$@" >"$log" 2>&1 ||
    fail "$ranks ranks, $*: ended with $?: $(cat "$log")"
  grep -q '^2 steps are right$' "$log" || fail "$ranks ranks, $*: $(cat "$log")"
}

# `make test` rounds in two of these ways.
for compress in none bf16; do
  if [ $compress = bf16 ] && [ -n "${PLM_TEST_FEWER:-}" ]; then
    right 3 cpu bf16
    PLM_RANK_GROUP=2 right 4 cuda bf16
    continue
  fi
  for ranks in 2 3 4; do right $ranks cpu $compress; done
  for size in 1 2; do PLM_RANK_GROUP=$size right 4 cpu $compress; done
  right 2 cuda $compress
  PLM_RANK_GROUP=2 right 4 cuda $compress
  PLM_COLLECTIVE=mpi right 2 cuda $compress
done
