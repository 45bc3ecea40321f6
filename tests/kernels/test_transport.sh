#!/usr/bin/env bash
# Memory of operators travels between ranks: directly, staged through the host, and by an emulated NCCL,
# which also has delays, errors and hangs, and refuses what NCCL does not allow.
. "$PLM_ROOT/tests/support/lib.sh"
. "$PLM_ROOT/tests/support/ranks.sh"
tool=$PLM_BUILD/tests/kernels/transport/tool_transport
export PLM_MPI_LIBRARY=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so
export PLM_CUDA_LIBRARY=$PLM_BUILD/tests/lib/libplm_cuda_emulated.so
export PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
export PLM_EMULATED_DEVICES=4
log=$PLM_TMP/transport.log

# exchange RANKS ARG...: runs the tool on so many ranks; its exit status and, in $log, its output
exchange() {
  local ranks=$1
  shift
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$tool" "$@" >"$log" 2>&1
}

# right RANKS TRANSPORT ARG...: runs it, and all elements arrive
right() {
  local ranks=$1 transport=$2
  shift 2
  exchange "$ranks" "$@" || fail "$transport with $ranks ranks ended with $?: $(cat "$log")"
  grep -q "^$transport: 6 rounds are right$" "$log" || fail "not $transport: $(cat "$log")"
}

# wrong RANKS STATUS TEXT ARG...: the exchange ends with this status and one rank says why
wrong() {
  local ranks=$1 status=$2 text=$3 ended=0
  shift 3
  exchange "$ranks" "$@" || ended=$?
  [ "$ended" -eq "$status" ] || fail "$* ended with $ended: $(cat "$log")"
  [ "$(grep -c "$text" "$log")" -eq 1 ] || fail "not one rank says '$text': $(cat "$log")"
}

right 4 direct cpu 6
for ranks in 2 4; do
  PLM_COLLECTIVE=mpi right $ranks staged cuda 6
  for seed in 0 1 2 3; do PLM_EMULATED_NCCL=$seed right $ranks nccl cuda 6; done
done
for size in 1 2; do # several groups on one host
  PLM_RANK_GROUP=$size PLM_COLLECTIVE=mpi right 4 staged cuda 6
  for seed in 4 5; do PLM_EMULATED_NCCL=$seed PLM_RANK_GROUP=$size right 4 nccl cuda 6; done
done
PLM_EMULATED_DEVICES=1 PLM_COLLECTIVE=mpi right 2 staged cuda 6 # both use the same device

# A rank that computes longer is told from the ranks that wait for it.
slow() { # TRANSPORT DEVICE
  exchange 2 "$2" 1 slow || fail "$1 ended with $?: $(cat "$log")"
  grep -q "^$1: rank 1 is the slowest$" "$log" || fail "$1 does not tell which rank is slow: $(cat "$log")"
}
slow direct cpu
PLM_COLLECTIVE=mpi slow staged cuda
for seed in 0 1 2; do PLM_EMULATED_NCCL=$seed slow nccl cuda; done

# One rank has an error that it did not ask for, or none gets what it waits for.
host=$(hostname)
for ranks in 2 4; do
  for seed in 1 2; do
    PLM_EMULATED_NCCL=$seed PLM_EMULATED_NCCL_FAULT=error wrong $ranks 1 \
      "rank [0-3] on $host: an exchange between GPUs failed: unhandled system error: an emulated error" cuda 6
    PLM_EMULATED_NCCL=$seed PLM_EMULATED_NCCL_FAULT=hang wrong $ranks 1 \
      'an exchange between the ranks did not end within 3 s' cuda 6
  done
done
for transport in nccl mpi; do
  PLM_COLLECTIVE=$transport wrong 2 1 "rank 1 on $host keeps the others waiting for 3 s; it is in step 1 (exchanging)" cuda 2 late
done
# The message is not lost if the rank that has it is slow: the others do not exit first.
wrong 4 1 "rank 1 on $host keeps the others waiting" cpu 2 hesitant
wrong 2 1 'device 1: .* is not allowed while operators are recorded' cuda 2 recorded

wrong 2 1 'round 2, transfer 0: element 0 of rank [01]' cuda 2 unwaited

# Transfers are under way while the computation continues.
PLM_EMULATED_TRACE=$PLM_TMP/trace.log right 2 nccl cuda 6
grep -q '^exchange [0-9]* under [1-9]' "$PLM_TMP/trace.log" || fail "nothing was computed beside a transfer: $(cat "$PLM_TMP/trace.log")"

# What NCCL does not check ends the emulation.
exchange 2 cuda 2 unequal && fail "pieces of unequal size were exchanged"
grep -q 'emulated NCCL: call [0-9]* of rank [01] is ncclAlltoAll of [0-9]* bytes, but that of rank [01] is ncclAlltoAll of' "$log" ||
  fail "nobody says that the sizes differ: $(cat "$log")"
exchange 2 cuda 2 order && fail "different calls were exchanged"
grep -q 'is ncclAllGather of [0-9]* bytes, but that of rank\|but that of rank [01] is ncclAllGather of' "$log" ||
  fail "nobody says that the calls differ: $(cat "$log")"

# What is wrong from the start.
PLM_EMULATED_NCCL_VERSION=22703 wrong 2 2 'is NCCL 2.27.3, but 2.28 or later is needed' cuda 1
PLM_NCCL_LIBRARY=$PLM_TMP/none.so wrong 2 2 'NCCL cannot be loaded' cuda 1
PLM_NCCL_LIBRARY=libm.so.6 wrong 2 2 'libm.so.6 is not NCCL' cuda 1
PLM_COLLECTIVE=pigeon wrong 2 2 'PLM_COLLECTIVE=pigeon: no such transport' cuda 1
PLM_EMULATED_DEVICES=1 wrong 2 2 "ranks 0 and 1 on $host use the same GPU (emulated:0), which NCCL cannot" cuda 1
PLM_EMULATED_DEVICES=2 wrong 3 2 'rank 2 of this host has no GPU, because there are only 2' cuda 1
