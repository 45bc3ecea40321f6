# shellcheck shell=bash
# Functions for tests of `up` with several ranks. Sourced after lib.sh.
if [ ! -e "$PLM_BUILD/lib/libplm_mpi.so" ] || ! command -v mpirun >/dev/null; then
  echo "this build has no MPI, or mpirun is not installed"
  exit 77
fi

unset "${!OMPI_@}" # as root, `up` itself allows mpirun to run
TMPDIR=$PLM_TMP/$(printf 'long%.0s' {1..30})
mkdir "$TMPDIR"
export TMPDIR

those_left() {
  grep -lz '^PLM_SUPERVISED=' /proc/[0-9]*/environ 2>/dev/null |
    while read -r file; do
      { tr '\0' '\n' <"$file"; } 2>/dev/null | grep -x "PLM_TMP=$PLM_TMP" >/dev/null && echo "$file"
    done || true
}
nobody() { [ -z "$(those_left)" ]; }
# nothing_left: neither processes nor the folders of Open MPI
nothing_left() {
  local path
  nobody || fail "processes are left: $(for path in $(those_left); do tr '\0' ' ' <"${path%environ}cmdline"; done)"
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
up_ends() { # up_ends CODE: the `up` in the background
  local got=0
  wait "$up" || got=$?
  [ "$got" -eq "$1" ] || fail "up ended with $got instead of $1: $(tail -n 40 "$run.err")"
}
has_steps() { [ "$(wc -l <"$1/trainer.jsonl")" -ge "$2" ]; }
mpirun_of() { plm-pipeline ps --run "$1" --json | jq '.[] | select(.stage == "trainer").pid'; }
folder_of() { # folder_of RUN: what mpirun and the ranks keep their files in
  tr '\0' '\n' <"/proc/$(mpirun_of "$1")/environ" | sed -n 's/^TMPDIR=//p'
}
rank_of() { # rank_of RUN RANK: its process
  local process
  for process in $(pgrep -P "$(mpirun_of "$1")" -f plm-trainer); do
    ! { tr '\0' '\n' <"/proc/$process/environ"; } 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" || echo "$process"
  done
}
same_as_whole() { # same_as_whole RUN
  diff <(exact_metrics whole/trainer.jsonl) <(exact_metrics "$1/trainer.jsonl") >difference ||
    fail "$1 differs from an undisturbed run: $(head -n 4 difference)"
}
