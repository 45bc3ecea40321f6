# shellcheck shell=bash
# Functions for tests of `up` with several ranks. Sourced after lib.sh.
. "${PLM_ROOT:?}/tests/support/shell/ranks.sh"
unset "${!OMPI_@}" # as root, `up` itself allows mpirun to run
TMPDIR=$PLM_TMP/$(printf 'long%.0s' {1..30})
mkdir "$TMPDIR"
export TMPDIR

# The same programs, but only the first start of a run finds the rank that is to stop itself.
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin
ln -s "$PLM_BIN/plm-packer" "$PLM_BIN/plm-evaluator" bin
mv a_rank bin/plm-trainer
export PATH=$PWD/bin:$PATH PLM_MPI_LIBRARY=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so PLM_STOP_ONCE=$PLM_TMP/once

nobody() { [ -z "$(supervised "PLM_TMP=$PLM_TMP")" ]; }
# nothing_left: neither processes nor the folders of Open MPI
nothing_left() {
  local path
  nobody || fail "processes are left: $(ps -o pid=,args= -p "$(supervised "PLM_TMP=$PLM_TMP" | paste -sd,)")"
  [ -z "$(ls -A "$TMPDIR")" ] || fail "files are left in TMPDIR: $(ls -A "$TMPDIR")"
  for path in "$XDG_RUNTIME_DIR"/*.mpi; do [ ! -e "$path" ] || fail "$path is left"; done
  [ -z "${folder:-}" ] || [ ! -e "$folder" ] || fail "$folder is left"
}
begin() { # begin RUN [ARGUMENT…]: `up` in the background; its output goes to RUN.err
  local run=$1
  shift
  plm-pipeline up pipeline.yaml --run "$run" "$@" >/dev/null 2>"$run.err" </dev/null &
  up=$!
}
begin_until() { # begin_until RANK WHERE RUN [ARGUMENT…]: until the rank has stopped itself there; its pid is in $stopped
  local rank=$1 where=$2 run=$3
  shift 2
  rm -rf once
  PLM_STOP_RANK=$rank PLM_STOP_HERE=$where begin "$@"
  wait_for 60 rank_runs "$run" "$rank"
  if [ -n "${PLM_STOP_WAIT:-}" ]; then until_waiting "$stopped"; else until_stopped "$stopped"; fi ||
    fail "rank $rank did not come to $where: $(tail -n 40 "$run.err")"
}
# begin_stopping N RUN [ARGUMENT…]: until rank 0 has stopped itself after N steps of this start
begin_stopping() { begin_until 0 "write:*/trainer.jsonl#$(($1 + 1))" "${@:2}"; }
# begin_waiting N RUN [ARGUMENT…]: until rank 0 waits there for a stop signal
begin_waiting() { PLM_STOP_WAIT=1 begin_stopping "$@"; }
go_on() { kill -CONT "$stopped" 2>/dev/null || true; } # the rank, if it still exists
rank_runs() { stopped=$(rank_of "$1" "$2") && [ -n "$stopped" ]; } # the one that begin_until waits for
up_ends() { # up_ends CODE: the `up` in the background
  local got=0
  wait "$up" || got=$?
  [ "$got" -eq "$1" ] || fail "up ended with $got instead of $1: $(tail -n 40 "$run.err")"
}
has_steps() { [ "$(wc -l <"$1/trainer.jsonl")" -ge "$2" ]; }
mpirun_of() { plm-pipeline ps --run "$1" --json | jq '.[] | select(.stage == "trainer").pid'; }
folder_of() { # folder_of RUN: what mpirun and the ranks keep their files in
  variable_of "$(mpirun_of "$1")" TMPDIR
}
rank_of() { rank_pid "$(mpirun_of "$1")" "$2"; } # rank_of RUN RANK: its process, if it has begun
same_as_whole() { # same_as_whole RUN
  diff <(exact_metrics whole/trainer.jsonl) <(exact_metrics "$1/trainer.jsonl") >difference ||
    fail "$1 differs from an undisturbed run: $(head -n 4 difference)"
}
