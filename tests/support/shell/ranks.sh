# shellcheck shell=bash
# Functions for tests that start several ranks with mpirun. Sourced after lib.sh; those that start trainers also need
# trainer.sh.
needs_mpi
must_be_there "$PLM_BUILD/tests/lib/stop_at.so"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export TMPDIR=$PLM_TMP OMPI_MCA_btl_vader_backing_directory=$PLM_TMP # for Open MPI's own files

# Settings for runs that any power of two up to four ranks computes with the same bits. Matrices of 256 x 256
# have an owner; vectors do not. Each further level of patch_unet would make its matrices four times as large.
# shellcheck disable=SC2034 # for the test
rank_settings=(--set trainer.micro_batch_tokens=128 --set trainer.threads=1 --set trainer.shares=4
  --set model.hidden_size=256 --set model.num_attention_heads=4 --set model.num_unet_layers=2)

# on_ranks R COMMAND...: runs it as so many ranks
launcher=(mpirun --oversubscribe --bind-to none -np)
on_ranks() { "${launcher[@]}" "$@"; }
# tool_on_ranks R COMMAND...: the same for a tool that ends soon, or hangs
tool_on_ranks() { timeout -k 5 120 "${launcher[@]}" "$@"; }

# plm-trainer, whose rank PLM_STOP_RANK (none: a trainer without ranks) stops itself at PLM_STOP_HERE if that is set
# (tests/faults/stop_at.c); with PLM_STOP_ONCE only if it can make this folder. With PLM_TRACE_RANKS, the emulated streams
# of rank N write PLM_TRACE_RANKS-N.
{ printf '#!/bin/bash\nbin=%q library=%q\n' "$PLM_BIN" "$PLM_BUILD/tests/lib/stop_at.so"; cat <<'RANK'; } >"$PLM_TMP/a_rank"
[ -z "${PLM_TRACE_RANKS:-}" ] || export PLM_EMULATED_TRACE=$PLM_TRACE_RANKS-$OMPI_COMM_WORLD_RANK
if [ -n "${PLM_STOP_HERE:-}" ] && [ "${OMPI_COMM_WORLD_RANK:-none}" = "${PLM_STOP_RANK:-}" ] &&
  { [ -z "${PLM_STOP_ONCE:-}" ] || mkdir "$PLM_STOP_ONCE" 2>/dev/null; }; then
  export PLM_STOP_AT=$PLM_STOP_HERE LD_PRELOAD=$library
  export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0
fi
exec "$bin/plm-trainer" "$@"
RANK
chmod +x "$PLM_TMP/a_rank"

# start_ranks R RUN [ARG...]: starts a gang in the background; the pid of mpirun (of the trainer, if R is 1)
# is in $trainer_pid
start_ranks() {
  local ranks=$1 run=$2
  shift 2
  local -a launch=(env PLM_STOP_RANK=none)
  [ "$ranks" -eq 1 ] || launch=(env PLM_STOP_RANK=0 "${launcher[@]}" "$ranks")
  "${launch[@]}" "$PLM_TMP/a_rank" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set "trainer.ranks=$ranks" "$@" \
    >>"$PLM_TMP/trainer.log" 2>&1 &
  trainer_pid=$!
}

# start_ranks_for R RUN N [ARG...]: the same, and waits until rank 0 has stopped itself when trainer.jsonl has N lines;
# with PLM_STOP_WAIT, until it waits there for a signal
start_ranks_for() {
  local ranks=$1 run=$2 lines=$3 first
  local where="write:*/trainer.jsonl#$((lines - $(newest_step "$run") + 1))"
  shift 3
  PLM_STOP_HERE=$where start_ranks "$ranks" "$run" "$@"
  if [ "$ranks" -eq 1 ]; then first=$trainer_pid; else first=$(started_rank "$trainer_pid" 0); fi || exit
  if [ -n "${PLM_STOP_WAIT:-}" ]; then until_waiting "$first"; else until_stopped "$first"; fi ||
    fail "rank 0 ended before $lines lines"
}

# run_ranks R RUN [ARG...]: runs a gang to its end and returns its exit status
run_ranks() {
  start_ranks "$@"
  wait "$trainer_pid"
}

# run_undisturbed_ranks R RUN [ARG...]: a complete run with its own packer, which disturbed runs are compared with. The
# arguments are the trainer's.
run_undisturbed_ranks() {
  start_packer "$2"
  run_ranks "$@" || fail "the undisturbed run ended with $?"
  stop_packer
}

# A process tells its number in its environment. There is none before it has begun its program, nor for a moment
# whenever it executes another one (a_rank, then plm-trainer): a rank is found by its number, never by its place in a list.
numbered_ranks() { # of the mpirun PID: NUMBER PID, in the order of the numbers
  local pid
  for pid in $(ps -o pid= --ppid "$1"); do
    echo "$(variable_of "$pid" OMPI_COMM_WORLD_RANK) $pid"
  done 2>/dev/null | grep '^[0-9]' | sort -n
}
# ranks_of PID: the pids of the ranks that mpirun started, in the order of their numbers. All of them must be training,
# or some may be missing.
ranks_of() { numbered_ranks "$1" | cut -d' ' -f2; }
# rank_pid PID N: the pid of rank N; nothing if it has not begun
rank_pid() { numbered_ranks "$1" | sed -n "s/^$2 //p"; }
# started_rank PID N: the same, once the mpirun PID has started it
started_rank() {
  local rank since=$SECONDS
  until rank=$(rank_pid "$1" "$2") && [ -n "$rank" ]; do
    kill -0 "$1" || fail "mpirun ended before rank $2 began"
    still_waiting "$since" "mpirun has not started rank $2"
  done
  echo "$rank"
}

# no_rank_left PID...: waits until all of these processes have ended
no_rank_left() {
  local pid
  for pid in "$@"; do
    for _ in $(seq 1200); do
      kill -0 "$pid" 2>/dev/null || continue 2
      sleep 0.1
    done
    fail "process $pid is still there: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done
}
