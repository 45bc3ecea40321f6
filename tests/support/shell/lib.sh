# shellcheck shell=bash
# What test scripts share. Sourced:  . "$PLM_ROOT/tests/support/shell/lib.sh"
#
# A script runs in $PLM_TMP. Everything it starts is ended when it exits. A check that fails ends the
# script and prints the line and what was wrong.
set -euo pipefail
: "${PLM_ROOT:?}" "${PLM_BIN:?}" "${PLM_TMP:?}"
export PATH=$PLM_BIN:$PATH
export NO_COLOR=1 XDG_RUNTIME_DIR=$PLM_TMP/runtime
mkdir -p "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
cd "$PLM_TMP"

show_logs() { :; } # a script that has logs says here what a failure prints of them
fail() {
  echo "FAILED at line ${BASH_LINENO[0]}: $*" >&2
  show_logs >&2
  exit 1
}

# Ends whatever still runs in this script's process group (the runner made one for it).
end_children() {
  local status=$?
  trap - EXIT
  local pids
  pids=$(jobs -p)
  [ -z "$pids" ] || kill -TERM $pids 2>/dev/null || true
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(jobs -pr)" ] || break
    sleep 0.1
  done
  pids=$(jobs -pr)
  [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || true
  [ "$status" -ne 0 ] || leaks
  exit "$status"
}
trap end_children EXIT

# Whatever has not happened after so many seconds never will, even on a busy machine: a third of the limit of the
# test (run_tests.py).
longest_wait_s=$((${limit_s:-900} / 3))
timeout_program=$(command -v timeout) # some scripts take almost everything off PATH
env_program=$(command -v env)

# still_waiting SINCE WHAT [PID]: for a loop that waits; SINCE is $SECONDS when it began. Fails if that is too long ago,
# and then also says what the process PID is.
still_waiting() {
  [ $((SECONDS - $1)) -lt "$longest_wait_s" ] ||
    fail "still waiting after $longest_wait_s s: $2${3:+: $(ps -o args= -p "$3")}"
  sleep 0.02
}

# The programs of the project that `expect` runs, and those that they start, look at their end for memory that was
# not released and that nothing points to. A sanitizer finds that itself.
leak_library=$(gcc -print-file-name=liblsan.so 2>/dev/null || true)
[[ -e $leak_library && ! ${PLM_BUILD-} =~ /(asan|tsan)$ ]] || leak_library=
# Without symbolize=0 it maps the program's file to read its symbols, perhaps to where a library was that is unloaded;
# what that library lost would then be said to be the program's.
export LSAN_OPTIONS=exitcode=0:log_exe_name=1:symbolize=0:log_path=$PLM_TMP/leaks

# leaks: fails if a program has said that it lost memory which the project's code took. Libraries such as Open MPI lose
# memory of their own.
leaks() {
  local lost file place
  lost=$({ cat "$PLM_TMP"/leaks.plm-* 2>/dev/null || true; } | awk -v RS= -v root="$PLM_ROOT/" '
    / leak of / { split($0, line, "\n")
      if (index(line[3], root) || line[3] ~ /(plm-[a-z]+|libplm_[a-z_]+[.]so)[+]/) print $0 "\n" }')
  [ -z "$lost" ] || {
    head -n 60 <<<"$lost" >&2
    grep -oE '/[^ ()]*(plm-[a-z]+|libplm_[a-z_]+[.]so)[+]0x[0-9a-f]+' <<<"$lost" | sort -u | head -n 20 |
      while IFS=+ read -r file place; do echo "$file+$place: $(addr2line -fse "$file" "$place" | paste -sd' ')"; done >&2
    fail "a program has not released memory"
  }
}

# expect EXIT-CODE COMMAND…: its output goes to ./out and ./err
expect() {
  local wanted=$1 got=0 by_timeout=()
  shift
  [ "$(type -t "$1")" = function ] || by_timeout=("$timeout_program" --foreground -k 10 "$longest_wait_s")
  [[ $1 != plm-* || -z $leak_library ]] || by_timeout+=("$env_program" LD_PRELOAD="$leak_library${LD_PRELOAD:+:$LD_PRELOAD}")
  "${by_timeout[@]}" "$@" >out 2>err </dev/null || got=$?
  [ "$got" -ne 124 ] || echo "it has not ended within $longest_wait_s s" >>err
  [ "$got" -eq "$wanted" ] || {
    sed 's/^/  out| /' out | tail -n 20 >&2
    sed 's/^/  err| /' err | tail -n 40 >&2
    fail "exit $got instead of $wanted: $*"
  }
}

# drained PID WHO: waits for a stage that SIGTERM stops, which it says with its exit code
drained() {
  local status=0
  wait "$1" || status=$?
  [ "$status" -eq 143 ] || fail "$2 ended with $status, and not with 143"
}

# says FILE REGEX: the file has a line that matches
says() {
  grep -qE -- "$2" "$1" || {
    sed 's/^/  | /' "$1" | tail -n 40 >&2
    fail "$1 does not say: $2"
  }
}

# … | matches GREP-ARGUMENTS: a line of standard input matches. It reads to the end. grep -q stops at the
# first match; a writer that is not done then dies of SIGPIPE, and pipefail makes a match a failure.
matches() { [ "$(grep -c "$@")" -gt 0 ]; }

# With -e, jq fails if nothing is printed. jq 1.6 of Debian 12 succeeds for an empty file, so a check of a
# file that is still being written would pass.
jq() {
  [[ ${1-} =~ ^-[a-z]*e ]] || {
    command jq "$@"
    return
  }
  local output status=0
  output=$(command jq "$@") || status=$?
  [ -z "$output" ] || printf '%s\n' "$output"
  [ "$status" -ne 0 ] || [ -n "$output" ] || status=4
  return "$status"
}

# any_line FILE FILTER: a line of JSON passes the filter. `jq -e` of jq 1.6 tells only whether the last one does.
any_line() { jq -ne "any(inputs; $2)" "$1"; }

# wait_for SECONDS COMMAND…: waits until it succeeds. SECONDS is for a quiet machine; a busy one gets
# five times as long, and at least two minutes, before the test fails. It asks less and less often, down to five times
# a second: jq and other programs that a command starts take more of a processor than what it waits for.
wait_for() {
  local until=$((SECONDS + ($1 < 24 ? 120 : 5 * $1))) pause=40 # ms
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || fail "still not true: $*"
    printf -v pause %03d $((10#$pause < 160 ? 10#$pause * 5 / 4 : 200))
    sleep "0.$pause"
  done
}

# must_be_there LIBRARY: for a library that is about to be preloaded. The loader only warns if it is missing; the
# program then does not stop itself, and the test would wait for that or fail later, in other words.
must_be_there() {
  [ -e "$1" ] || fail "$1 is to be preloaded, and is not built (make tests)"
}

# stopping_at CALL:PATTERN#N COMMAND…: runs it so that it stops itself before that call
# (tests/faults/stop_at.c). For the background: with `&`, $! is the program itself.
stopping_at() {
  local library=$PLM_BUILD/tests/lib/stop_at.so
  must_be_there "$library"
  exec env PLM_STOP_AT="$1" LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}" \
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" "${@:2}"
}

# thread_states PID: one letter for each thread, as in proc(5), into $states. Returns 1 if there is no such process.
thread_states() {
  local file line
  states=
  for file in "/proc/$1/task/"*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue # the thread has just ended
    line=${line##*) }
    states+=${line%% *}
  done
  [ -n "$states" ]
}

# until_stopped PID: waits until all threads of the process have stopped. Returns 1 if it ends first.
until_stopped() {
  local states since=$SECONDS
  while thread_states "$1"; do
    [[ ! $states =~ ^T+$ ]] || return 0
    [[ ! $states =~ ^[ZX]+$ ]] || return 1
    still_waiting "$since" "process $1 has not stopped" "$1"
  done
  return 1
}

# suspend PID…: stops these processes, and waits until they have stopped: `kill` only sends the signal
suspend() {
  local pid
  kill -STOP "$@" || fail "there is no such process: $*"
  for pid in "$@"; do until_stopped "$pid" || fail "process $pid ended before it stopped"; done
}

# until_waiting PID: waits until the process waits for a signal (PLM_STOP_WAIT). Returns 1 if it ends first.
until_waiting() {
  local states name since=$SECONDS
  while thread_states "$1" && { read -r name <"/proc/$1/comm"; } 2>/dev/null; do
    [ "$name" != waiting ] || return 0
    [[ ! $states =~ ^[ZX]+$ ]] || return 1
    still_waiting "$since" "process $1 does not wait for a signal" "$1"
  done
  return 1
}

# has_mpi: whether several ranks can train here
has_mpi() { [ -e "$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so" ] && command -v mpirun >/dev/null; }
# needs_mpi: skips the test if they cannot
needs_mpi() {
  ! has_mpi || return 0
  echo "this build has no MPI, or mpirun is not installed"
  exit 77
}

# variable_of PID NAME: the value of a variable in the environment with which a process began
variable_of() { { tr '\0' '\n' <"/proc/$1/environ"; } 2>/dev/null | sed -n "s/^$2=//p"; }
# supervised NAME=VALUE: the pids of processes that a supervisor started with this in their environment
supervised() {
  local file
  for file in $(grep -lz '^PLM_SUPERVISED=' /proc/[0-9]*/environ 2>/dev/null); do
    file=${file%/environ}
    [ "$(variable_of "${file#/proc/}" "${1%%=*}")" != "${1#*=}" ] || echo "${file#/proc/}"
  done
}

# small_fasta FILE SEQUENCES [SEED]: deterministic protein-like sequences of 20 to 219 residues
small_fasta() {
  awk -v count="$2" -v seed="${3:-1}" 'BEGIN {
    srand(seed); letters = "LAGVSERTIDPKQNFYMHWC"
    for (i = 0; i < count; i++) {
      length_ = 20 + int(200 * rand()); sequence = ""
      for (j = 0; j < length_; j++) sequence = sequence substr(letters, 1 + int(20 * rand() * rand()), 1)
      printf ">seq%d made up\n%s\n", i, sequence
    }
  }' >"$1"
}

# small_corpus DIR [SEQUENCES]: ingested, ten percent each for valid and test
small_corpus() {
  small_fasta "$1.fasta" "${2:-400}"
  plm-pipeline ingest "$1.fasta" --corpus "$1" --split train=0.8,valid=0.1,test=0.1 -q
}

# Endpoints that no other test has: the system chooses the ports.
loopback='feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"'

# small_config FILE ARCHITECTURE [YAML LINES…]: seconds to train; ports chosen by the system.
# Later lines of the same key path must not repeat; pass overrides with --set instead.
small_config() {
  cat >"$1" <<END
version: 1
run: run
seed: 7
corpus: corpus
network: {$loopback, wait_packers_s: 300}
data:
  max_length: 256
model:
  architecture: $2
  hidden_size: 64
  num_attention_heads: 2
  num_hidden_layers: 2
  num_unet_layers: 4
  num_extra_layers: 1
trainer:
  device: cpu
  threads: 1
  precision: fp32
  steps: 12
  batch_tokens: 1024
  micro_batch_tokens: 512
  schedule: {warmup_steps: 2, cooldown_steps: 4}
  checkpoint: {every: 4, keep_last: 8}
evaluator:
  max_tokens: 4000
END
}

# exact_metrics FILE: the exact fields of trainer.jsonl, a line a step
exact_metrics() {
  jq -c '{step, loss, lr_hidden, lr_embed, lr_head, lr_scalar, grad_norm, clip_norm, mask_rate,
          window, tokens, padding_fraction, skipped_updates, accuracy, gradient_norms, weight_norms,
          update_norms, tokens_by_source, loss_by_source}' "$1"
}

# nobody_left DIR: no process of this test has the folder in its command line. (A test beside it may have a folder with
# the same name.)
nobody_left() {
  local pid
  for pid in $(pgrep -f "plm-(pipeline|packer|trainer|evaluator).*$1"); do
    { cat "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null || true; } | matches -aF "$PLM_TMP" && return 1
  done
  return 0
}
