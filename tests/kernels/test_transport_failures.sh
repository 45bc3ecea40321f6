#!/usr/bin/env bash
# An exchange between ranks hangs, or a rank is late: one rank says why, and all end. Emulated devices and NCCL (test_transport.sh).
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/transport.sh"

# These wait for most of their time, so they run beside everything else, each with a log of its own, and a folder of its
# own for Open MPI, of which two that start at once would make the same one.
waiting=()
beside() {
  local folder=$PLM_TMP/waiting.${#waiting[@]}
  # shellcheck disable=SC2034 # what `exchange` prints
  local log=$folder/log
  mkdir "$folder"
  TMPDIR=$folder "$@" &
  waiting+=($!)
}
# None gets what it waits for.
for ranks in 2 4; do
  PLM_TEST_TIMEOUT_S=3 PLM_EMULATED_NCCL_FAULT=hang beside wrong $ranks 1 \
    'an exchange between the ranks did not end within 3 s' cuda 6 right "$ranks"
done
late="rank 1 on ${host:?} keeps the others waiting for 3 s; it is in step 1 (exchanging)"
for pass in mpi 0; do PLM_TEST_TIMEOUT_S=3 beside wrong 2 1 "$late" cuda 2 late $pass; done
# What happened is said, even if the rank that has to say it takes its time or its main thread computes. Rank 0 says both
# what it alone has found (the first two) and what all ranks have found (the last).
for kind in hesitant busy; do PLM_TEST_TIMEOUT_S=3 beside wrong 4 1 "$late" cpu 2 $kind; done
PLM_EMULATED_NCCL_VERSION=22703 beside wrong 2 2 'is NCCL 2.27.3, but 2.28 or later is needed' cuda 1 hesitant

for pid in "${waiting[@]}"; do wait "$pid" || exit 1; done
