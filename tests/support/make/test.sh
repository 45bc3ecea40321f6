#!/usr/bin/env bash
# test.sh SET: what `make test`, `test-quick` and `test-all` do. Installs the packages and the Python environment that
# the chosen tests need, builds what they need, and runs them. The Makefile sets BUILD, JOBS, MAKE, PYTHON and TESTS,
# which has patterns with blanks between them.
set -euo pipefail
cd "$(dirname "$0")/../../.."
read -ra patterns <<<"$TESTS"
run=(env "PLM_BUILD=$BUILD" python3 -B tests/support/runner/run_tests.py --set "$1" "${patterns[@]}")

packages=$("${run[@]}" --packages) || exit
# shellcheck disable=SC2086 # a list of words
tests/support/make/deps.sh $packages
export PLM_VENV=${PLM_VENV:-$PWD/build/venv}
environment=$("${run[@]}" --environment)
if [ "$PYTHON" = 0 ]; then
  PLM_VENV=
elif [ -n "$environment" ]; then
  tests/support/make/venv.sh "$environment" || {
    echo "test: continuing with the Python packages that are installed; tests that need more are skipped" >&2
  }
fi
targets=$("${run[@]}" --targets)
# shellcheck disable=SC2086
"$MAKE" --no-print-directory -j"$JOBS" $targets
exec "${run[@]}"
