#!/usr/bin/env bash
# Gradients are exchanged between devices while the backward pass continues: the emulated streams say how
# much work a device may do during each transfer of NCCL.
. "$PLM_ROOT/tests/support/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=2 PLM_EMULATED_TRACE=$PLM_TMP/trace.log
steps=4

# blocks of 256 x 256 matrices, so that there are several buckets
start_packer "$PLM_TMP/run"
run_ranks 2 "$PLM_TMP/run" "${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.shares=2 \
  --set trainer.device=cuda --set trainer.steps=$steps --set model.architecture=transformer \
  --set model.num_hidden_layers=3 || fail "the run ended with $?"
stop_packer

exchanges=$(grep -c '^exchange' trace.log)
beside=$(awk '$1 == "exchange" && $4 >= 5' trace.log | wc -l)
[ "$exchanges" -gt 0 ] || fail "no transfer was traced"
# on each of two ranks, in each step
[ "$beside" -ge $((2 * steps)) ] ||
  fail "only $beside of $exchanges transfers run beside the computation: $(grep '^exchange' trace.log | sort | uniq -c)"
! grep -E '^record 0$' trace.log || fail "a recording is empty"
