# shellcheck shell=bash
# Functions for tests that exchange memory of operators between ranks by tool_transport. Sourced after lib.sh.
. "${PLM_ROOT:?}/tests/support/shell/ranks.sh"
tool=$PLM_BUILD/tests/kernels/transport/tool_transport
export PLM_MPI_LIBRARY=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so
export PLM_CUDA_LIBRARY=$PLM_BUILD/tests/lib/libplm_cuda_emulated.so
export PLM_NCCL_LIBRARY=$PLM_BUILD/tests/lib/libnccl_emulated.so
export PLM_EMULATED_DEVICES=4
log=$PLM_TMP/transport.log
# shellcheck disable=SC2034 # for the test
host=$(hostname)

# exchange RANKS ARG...: runs the tool on so many ranks; its exit status and, in $log, its output
exchange() {
  local ranks=$1
  shift
  tool_on_ranks "$ranks" "$tool" "$@" >"$log" 2>&1
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
