#!/usr/bin/env bash
# Runs the tests in parallel, each in its own process group and its own temporary folder, which is
# removed afterwards. Prints a line for each test, the output of those that fail, and a final count.
#
#   tests/support/run.sh [PATTERN...]    patterns are grep -E expressions on the tests' names
#
# A test program is build/tests/**/test_* or fuzz_*; a script is tests/**/test_*.sh; a Python test is
# tests/**/test_*.py, run by pytest in the environment PLM_VENV (none: skipped). Exit 77 means skipped
# (the last line of its output says why). The environment names PLM_BUILD (build folder), PLM_BIN
# (programs), PLM_ROOT (source tree) and PLM_TMP (the test's own folder). PLM_MUST_RUN is a pattern of
# names; one of these tests fails if it is skipped.
#
# Tests of code that depends on the processor run again as NAME@LEVEL, with PLM_CPU_ISA=LEVEL, for each
# lower level that this processor has (kernels/cpu/processor.h).
#
# With a sanitized build (build/asan, build/tsan), everything that sanitizers cannot see is left out:
# repetitions that compare bits, the lower levels (the operators' tests run the kernels of every
# instruction set anyway), and Python tests that start no program.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
export PLM_ROOT=$PWD
export PLM_BUILD=${PLM_BUILD:-build}
case $PLM_BUILD in /*) ;; *) PLM_BUILD=$PLM_ROOT/$PLM_BUILD ;; esac
export PLM_BIN=$PLM_BUILD/bin
export CUDA_VISIBLE_DEVICES= # device `auto` is the CPU here; make gpu-check tests GPUs
export PLM_ALGORITHM_CACHE= # tests keep no product algorithms in the home folder
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PLM_ROOT/tests/support/tsan.supp}
jobs=${JOBS:-$(nproc)}
case ${PLM_BUILD##*/} in asan | tsan) sanitized=1 ;; *) sanitized= ;; esac
[ -z "$sanitized" ] || export PLM_TEST_ONCE=1
limit_s=${PLM_TEST_LIMIT_S:-${sanitized:+7200}}
limit_s=${limit_s:-900}
export limit_s
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export results

names() {
  find "$PLM_BUILD/tests" -type f \( -name 'test_*' -o -name 'fuzz_*' \) -perm -u+x -printf '%P\n' 2>/dev/null
  find tests \( -name 'test_*.sh' -o -name 'test_*.py' \) -not -path 'tests/gpu/*' -printf '%P\n'
}

only_python='^(bench/test_step_rounds|common/huggingface/test_modeling_(compile|embed|inductor|masks)|support/test_terminal_svg)\.py$'
seen() { if [ -n "$sanitized" ]; then grep -vE "$only_python"; else cat; fi; }

# ---- processors ----
at_each_level='^(kernels/test_ops_(products|rows|cached|optimizer)|common/model/test_(decode|model_.*)|golden/test_training\.py)$'

levels_tool=$PLM_BUILD/tests/processors/levels/tool_levels

lesser_levels() {
  [ -z "${PLM_CPU_ISA:-}$sanitized" ] && [ -x "$levels_tool" ] || return 0
  local level name
  # the best level is what the tests use anyway
  for level in $("$levels_tool" | sed -n 's/^has //p' | tail -n +2); do
    names | grep -E "$at_each_level" | while read -r name; do echo "$name@$level"; done
  done
}

# One process a file; a thread each, since tests run side by side. Nothing is fetched, and what
# transformers keeps (code of checkpoints) goes into the test's own folder.
python_test() {
  [ -x "${PLM_VENV:-}/bin/python" ] || { echo "no Python environment (make venv)"; return 77; }
  cd "$PLM_TMP" || return 1
  export HF_HOME=$PLM_TMP/huggingface HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
  export PYTHONPATH=$PLM_ROOT/tests/support PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
  export TORCHINDUCTOR_CACHE_DIR=$PLM_TMP/inductor TMPDIR=$PLM_TMP
  exec "$PLM_VENV/bin/python" -m pytest -q --no-header -p no:cacheprovider --rootdir="$PLM_ROOT/tests" \
    --basetemp="$PLM_TMP/pytest" "$1"
}
export -f python_test

# Ends what the test has left. It would write to the folder while that is removed, or stay stopped for ever.
end_those_left() {
  local left
  for _ in {1..100}; do
    left=$(env -u PLM_TMP grep -lszFx "PLM_TMP=$PLM_TMP" /proc/[0-9]*/environ | cut -d/ -f3)
    [ -n "$left" ] || return 0
    kill -KILL $left 2>/dev/null
    sleep 0.05
  done
}
export -f end_those_left

one() {
  local name=$1 key=${1//\//_} started status
  export PLM_TMP=$results/tmp-${name##*/} # short: sockets lie in it, and a path of one has 107 bytes
  mkdir "$PLM_TMP"
  started=$(date +%s)
  local test=${name%@*}
  [ "$test" = "$name" ] || export PLM_CPU_ISA=${name#*@}
  if [[ $test == *.sh ]]; then set -- bash "$PLM_ROOT/tests/$test"
  elif [[ $test == *.py ]]; then set -- bash -c 'python_test "$1"' python_test "$PLM_ROOT/tests/$test"
  else set -- "$PLM_BUILD/tests/$test"; fi
  setsid --wait timeout -k 10 "$limit_s" "$@" >"$results/$key.log" 2>&1 </dev/null
  status=$?
  local took=$(($(date +%s) - started))
  end_those_left
  rm -rf "$PLM_TMP"
  case $status in
    0) echo "ok      $name (${took} s)"; echo pass >"$results/$key.result" ;;
    77) local verdict=skip word=skipped
       if [ -n "${PLM_MUST_RUN:-}" ] && [[ $name =~ $PLM_MUST_RUN ]]; then verdict=fail word='FAILED (skipped)'; fi
       echo "$word $name: $(tail -n 1 "$results/$key.log")"; echo "$verdict" >"$results/$key.result" ;;
    *) echo "FAILED  $name (exit $status, ${took} s)"; echo fail >"$results/$key.result"
       [ "$status" -eq 124 ] && echo "        stopped after $limit_s s"
       sed 's/^/        | /' "$results/$key.log" | tail -n 60 ;;
  esac
}
export -f one

pattern=$(IFS='|'; echo "$*")
list=$({ names | seen; lesser_levels; } | LC_ALL=C sort -u | grep -E -- "${pattern:-.}")
[ -n "$list" ] || { echo "no test matches '$pattern'" >&2; exit 2; }
# scripts drive whole pipelines and take longest: first
{ grep -E '\.(py|sh)(@|$)' <<<"$list"; grep -vE '\.(py|sh)(@|$)' <<<"$list"; } |
  xargs -P "$jobs" -I{} bash -c 'one {}'

count() { grep -lx "$1" "$results"/*.result 2>/dev/null | wc -l; }
passed=$(count pass) failed=$(count fail) skipped=$(count skip)
if [ ! -x "$levels_tool" ] && grep -qE "$at_each_level" <<<"$list"; then
  echo "no test was repeated at lower levels, because $levels_tool is not built"
elif grep -q @ <<<"$list"; then
  "$levels_tool" | sed -n 's/^lacks \(.*\)/not tested: \1, which this processor lacks/p'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
