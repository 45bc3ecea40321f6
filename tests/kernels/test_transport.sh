#!/usr/bin/env bash
# Memory of operators travels between ranks: directly, staged through the host, and by an emulated NCCL, which also has
# delays, and refuses what NCCL does not allow. test_transport_failures.sh has what waits for a timeout.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/transport.sh"

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

# One rank has an error that it did not ask for. With these seeds of the emulation, it is rank 0 of 2 and rank 2 of 4.
for ranks in 2 4; do
  PLM_EMULATED_NCCL_FAULT=error wrong $ranks 1 \
    "rank $((ranks - 2)) on ${host:?}: an exchange between GPUs failed: unhandled system error: an emulated error" cuda 6 right "$ranks"
done

# What NCCL does not check ends the emulation.
exchange 2 cuda 2 unequal && fail "slices of unequal size were exchanged"
grep -q 'emulated NCCL: call [0-9]* of rank [01] is ncclAlltoAll of [0-9]* bytes, but that of rank [01] is ncclAlltoAll of' "${log:?}" ||
  fail "nobody says that the sizes differ: $(cat "$log")"
exchange 2 cuda 2 order && fail "different calls were exchanged"
grep -q 'is ncclAllGather of [0-9]* bytes, but that of rank\|but that of rank [01] is ncclAllGather of' "$log" ||
  fail "nobody says that the calls differ: $(cat "$log")"

# Without a name, or with an empty one, it is the NCCL that the loader finds.
mkdir "$PLM_TMP/loader"
ln -s "$PLM_NCCL_LIBRARY" "$PLM_TMP/loader/libnccl.so.2"
for names in '-u PLM_NCCL_LIBRARY' PLM_NCCL_LIBRARY=; do
  # shellcheck disable=SC2086
  tool_on_ranks 2 env $names LD_LIBRARY_PATH="$PLM_TMP/loader${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$tool" cuda 6 right >"$log" 2>&1 ||
    fail "env $names: ended with $?: $(cat "$log")"
  passed nccl 1
done

# What is wrong from the start.
PLM_NCCL_LIBRARY=$PLM_TMP/none.so wrong 2 2 'NCCL cannot be loaded' cuda 1 right
PLM_NCCL_LIBRARY=libm.so.6 wrong 2 2 'libm.so.6 is not NCCL' cuda 1 right
PLM_COLLECTIVE=pigeon wrong 2 2 'PLM_COLLECTIVE=pigeon: no such transport' cuda 1 right
wrong 2 2 "rank 0 on $host has PLM_COLLECTIVE=nccl, but rank 1 on $host has pigeon" cuda 1 pigeon
PLM_EMULATED_DEVICES=1 wrong 2 2 "ranks 0 and 1 on $host use the same GPU (emulated:0), which NCCL cannot" cuda 1 right
PLM_EMULATED_DEVICES=2 wrong 3 2 'rank 2 of this host has no GPU, because there are only 2' cuda 1 right
