#!/usr/bin/env bash
# The MPI engine: every kind of transfer brings the right bytes, ranks have their places, and all ranks learn why an
# exchange has failed: an error of one rank, or one that keeps the others waiting.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
tool=$PLM_BUILD/tests/kernels/mpi/engine/tool_engine
export PLM_MPI_LIBRARY=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so

# engine RANKS STATUS KIND: runs it, with a folder of its own for Open MPI. What it printed, sorted, is in KIND.RANKS.
engine() {
  local folder=$PLM_TMP/$3.$1 ended=0
  mkdir -p "$folder/told"
  TMPDIR=$folder tool_on_ranks "$1" "$tool" "$3" "$folder/told" >"$folder/log" 2>"$folder/err" || ended=$?
  [ "$ended" -eq "$2" ] || fail "$3 with $1 ranks ended with $ended: $(cat "$folder/log" "$folder/err")"
  sort "$folder/log"
}

# said RANKS STATUS KIND TEXT: all ranks print these lines, in any order; seconds are N, and a rank may fall silent before
# it has said what it does
said() {
  local said
  said=$(engine "$1" "$2" "$3") || exit 1
  said=$(sed 's/ [0-9]* s\b/ N s/; s/it was in step [0-9]* ([a-z]*)$/it was in a step/' <<<"$said")
  [ "$said" = "$4" ] || fail "$3 with $1 ranks: $(diff <(echo "$4") <(echo "$said"))"
}

host=$(hostname)
waiting=()
said 3 0 patient '' & waiting+=($!)
said 3 1 late "rank 0 says: rank 1 on $host keeps the others waiting for N s; it is in step 6 (idling)
rank 0: speaker 0, failure: rank 1 on $host keeps the others waiting for N s; it is in step 6 (idling)
rank 1: speaker 0, failure: rank 1 on $host keeps the others waiting for N s; it is in step 6 (idling)
rank 2: speaker 0, failure: rank 1 on $host keeps the others waiting for N s; it is in step 6 (idling)" & waiting+=($!)
said 2 1 elsewhere "rank 0 says: an exchange between the ranks did not end within N s
rank 0: speaker 0, failure: an exchange between the ranks did not end within N s
rank 1: speaker 0, failure: an exchange between the ranks did not end within N s" & waiting+=($!)
said 2 1 silent "rank 0 says: rank 1 on $host has been silent for N s; it was in a step
rank 0: speaker 0, failure: rank 1 on $host has been silent for N s; it was in a step" & waiting+=($!)

said 3 4 fail "rank 0: speaker 1, timed out: it is tired
rank 1 says: it is tired
rank 1: speaker 1, timed out: it is tired
rank 2: speaker 1, timed out: it is tired"
said 3 0 right 'rank 0 of 3: group of 1, 0 of 3 here
rank 1 of 3: group of 1, 1 of 3 here
rank 2 of 3: group of 1, 2 of 3 here'
said 4 0 right 'rank 0 of 4: group of 4, 0 of 4 here
rank 1 of 4: group of 4, 1 of 4 here
rank 2 of 4: group of 4, 2 of 4 here
rank 3 of 4: group of 4, 3 of 4 here'
PLM_RANK_GROUP=2 said 4 0 right 'rank 0 of 4: group of 2, 0 of 4 here
rank 1 of 4: group of 2, 1 of 4 here
rank 2 of 4: group of 2, 2 of 4 here
rank 3 of 4: group of 2, 3 of 4 here'
for pid in "${waiting[@]}"; do wait "$pid" || exit 1; done
