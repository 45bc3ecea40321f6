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
host=$(hostname)

# exchange RANKS ARG...: runs the tool on so many ranks; its exit status and, in $log, its output
exchange() {
  local ranks=$1
  shift
  timeout -k 5 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$tool" "$@" >"$log" 2>&1
}

# right RANKS ARG...: runs it, and all elements arrive in every pass
right() {
  exchange "$@" || fail "$*: ended with $?: $(cat "$log")"
}
# passed TRANSPORT TIMES: so many passes of the last run were made by it
passed() {
  [ "$(grep -c "^$1: 6 rounds are right$" "$log")" -eq "$2" ] || fail "not $2 times $1: $(cat "$log")"
}
# told_slow TRANSPORT TIMES: in so many of them it told the rank that computes longer from the ranks that wait for it
told_slow() {
  [ "$(grep -c "^$1: rank 1 is the slowest$" "$log")" -eq "$2" ] ||
    fail "$1 does not tell which rank is slow: $(cat "$log")"
}

# wrong RANKS STATUS TEXT ARG...: the exchange ends with this status and one rank says why
wrong() {
  local ranks=$1 status=$2 text=$3 ended=0
  shift 3
  exchange "$ranks" "$@" || ended=$?
  [ "$ended" -eq "$status" ] || fail "$* ended with $ended: $(cat "$log")"
  [ "$(grep -c "$text" "$log")" -eq 1 ] || fail "not one rank says '$text': $(cat "$log")"
}

# These wait for most of their time, so they run beside everything else, each with a log of its own, and a folder of its
# own for Open MPI, of which two that start at once would make the same one.
waiting=()
beside() {
  local folder=$PLM_TMP/waiting.${#waiting[@]}
  local log=$folder/log
  mkdir "$folder"
  TMPDIR=$folder "$@" &
  waiting+=($!)
}
# One rank has an error that it did not ask for, or none gets what it waits for. With these seeds of the emulation, it is
# rank 0 of 2 and rank 2 of 4.
for ranks in 2 4; do
  PLM_EMULATED_NCCL_FAULT=error beside wrong $ranks 1 \
    "rank $((ranks - 2)) on $host: an exchange between GPUs failed: unhandled system error: an emulated error" cuda 6 right "$ranks"
  PLM_TEST_TIMEOUT_S=3 PLM_EMULATED_NCCL_FAULT=hang beside wrong $ranks 1 \
    'an exchange between the ranks did not end within 3 s' cuda 6 right "$ranks"
done
late="rank 1 on $host keeps the others waiting for 3 s; it is in step 1 (exchanging)"
for pass in mpi 0; do PLM_TEST_TIMEOUT_S=3 beside wrong 2 1 "$late" cuda 2 late $pass; done
# What happened is said, even if the rank that has to say it takes its time or its main thread computes. Rank 0 says both
# what it alone has found (the first two) and what all ranks have found (the last).
for kind in hesitant busy; do PLM_TEST_TIMEOUT_S=3 beside wrong 4 1 "$late" cpu 2 $kind; done
PLM_EMULATED_NCCL_VERSION=22703 beside wrong 2 2 'is NCCL 2.27.3, but 2.28 or later is needed' cuda 1 hesitant

right 4 cpu 6 slow
passed direct 1
told_slow direct 1
right 2 cuda 6 slow mpi 0 1 2 3
passed staged 1
told_slow staged 1
passed nccl 4
told_slow nccl 4
right 4 cuda 6 right mpi 0 1 2 3
passed staged 1
passed nccl 4
for size in 1 2; do # several groups on one host
  PLM_RANK_GROUP=$size right 4 cuda 6 right mpi 4 5
  passed staged 1
  passed nccl 2
done
PLM_EMULATED_DEVICES=1 PLM_COLLECTIVE=mpi right 2 cuda 6 right # both use the same device
passed staged 1

wrong 2 1 'device 1: .* is not allowed while operators are recorded' cuda 2 recorded
wrong 2 1 'round 2, transfer 0: element 0 of rank [01]' cuda 2 unwaited

# Transfers are under way while the computation continues: each of the four in a round, on both ranks, until the
# copies of those that were begun after it have been made.
PLM_EMULATED_TRACE=$PLM_TMP/trace.log right 2 cuda 6 right
passed nccl 1
[ "$(grep '^exchange' "$PLM_TMP/trace.log" | sort | uniq -c | sed 's/^ *//')" = "12 exchange 16384 under 3
12 exchange 2048 under 0
12 exchange 4096 under 1
12 exchange 8192 under 2" ] || fail "not all transfers ran beside the computation: $(cat "$PLM_TMP/trace.log")"

# What NCCL does not check ends the emulation.
exchange 2 cuda 2 unequal && fail "pieces of unequal size were exchanged"
grep -q 'emulated NCCL: call [0-9]* of rank [01] is ncclAlltoAll of [0-9]* bytes, but that of rank [01] is ncclAlltoAll of' "$log" ||
  fail "nobody says that the sizes differ: $(cat "$log")"
exchange 2 cuda 2 order && fail "different calls were exchanged"
grep -q 'is ncclAllGather of [0-9]* bytes, but that of rank\|but that of rank [01] is ncclAllGather of' "$log" ||
  fail "nobody says that the calls differ: $(cat "$log")"

# What is wrong from the start.
PLM_NCCL_LIBRARY=$PLM_TMP/none.so wrong 2 2 'NCCL cannot be loaded' cuda 1 right
PLM_NCCL_LIBRARY=libm.so.6 wrong 2 2 'libm.so.6 is not NCCL' cuda 1 right
PLM_COLLECTIVE=pigeon wrong 2 2 'PLM_COLLECTIVE=pigeon: no such transport' cuda 1 right
wrong 2 2 "rank 0 on $host has PLM_COLLECTIVE=nccl, but rank 1 on $host has pigeon" cuda 1 pigeon
PLM_EMULATED_DEVICES=1 wrong 2 2 "ranks 0 and 1 on $host use the same GPU (emulated:0), which NCCL cannot" cuda 1 right
PLM_EMULATED_DEVICES=2 wrong 3 2 'rank 2 of this host has no GPU, because there are only 2' cuda 1 right

for pid in "${waiting[@]}"; do wait "$pid" || exit 1; done
