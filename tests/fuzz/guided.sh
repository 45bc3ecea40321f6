#!/usr/bin/env bash
# Runs fuzzers under libFuzzer, some of them at a time (make fuzz-guided).
#
#   tests/fuzz/guided.sh BUILD SECONDS JOBS [NAME,NAME…]
#
# What a fuzzer has learnt stays in BUILD/corpus/NAME, so the next run begins where this one ended. An
# input that fails is written to BUILD/found.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

one() { # BUILD SECONDS NAME
  local build=$1 seconds=$2 name=$3 log=$1/logs/$3.log learnt=$1/corpus/$3 work status
  local folders=("$learnt") options=()
  work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")") || exit 1
  mkdir -p "$learnt" "$work/seeds"
  folders+=("$work/seeds")
  [ -d "tests/fuzz/corpus/$name" ] && folders+=("tests/fuzz/corpus/$name")
  # Every key is compared with hundreds of names; watching these comparisons takes most of the time.
  [ "$name" = config ] && options+=(-use_cmp=0)
  export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=8
  PLM_TMP=$work PLM_FUZZ_SEEDS=$work/seeds "$build/tests/fuzz/fuzz_$name" "${folders[@]}" \
    -max_total_time="$seconds" -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=20 -max_len=65536 \
    -artifact_prefix="$build/found/$name-" -print_final_stats=1 "${options[@]}" >"$log" 2>&1
  status=$?
  rm -rf "$work"
  if [ "$status" -ne 0 ]; then
    echo "FAILED  $name (exit $status, $log)"
    tail -n 40 "$log" | sed 's/^/        | /'
    echo "        repeat: $build/tests/fuzz/fuzz_$name FILE (the file that the log names)"
    exit 1
  fi
  awk -v name="$name" -v files="$(find "$learnt" -type f | wc -l)" '
    /^stat::number_of_executed_units/ { inputs = $2 }
    / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1) }
    END { printf "ok      %-14s %10d inputs, %6d edges reached, %5d files\n", name, inputs, edges, files }' "$log"
}

if [ "${1:-}" = --one ]; then
  shift
  one "$@"
  exit
fi
build=$1 seconds=$2 jobs=$3
mkdir -p "$build/logs" "$build/found" "$build/corpus"
if [ -n "${4:-}" ]; then
  tr , '\n' <<<"$4"
else
  for path in tests/fuzz/fuzz_*.c; do
    path=${path##*/fuzz_}
    echo "${path%.c}"
  done
fi | xargs -P "$jobs" -I{} "$0" --one "$build" "$seconds" {}
