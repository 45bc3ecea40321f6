#!/usr/bin/env bash
# `up FILE evaluator --apart` beside another `up` of the run: it starts the evaluator again, ends with it, and touches
# nothing of the other supervisor. Also as process 1 of a namespace, as in a container: it reaps what it did not start,
# and a signal stops it also before it watches for signals.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
apart=(plm-pipeline up pipeline.yaml evaluator --apart)

# ---- what it cannot be combined with ----
refused() { # MESSAGE OPERAND...
  expect 2 plm-pipeline up pipeline.yaml "${@:2}" --apart
  says err "^plm-pipeline: $1"
}
refused '--apart is only for the evaluator: '
refused '--apart is only for the evaluator: ' trainer
refused '--apart is only for the evaluator: ' evaluator packer
refused '--apart and --detach exclude each other' evaluator -d
refused '--apart and --resume exclude each other' evaluator --resume never
refused '--apart and --launch exclude each other' evaluator --launch evaluator=env
[ ! -e run ] || fail "a refused command left $(find run)"

# ---- beside the run's own supervisor ----
# The trainer waits before its last line, so that the evaluator can be killed before the run is complete.
PLM_STOP_UNTIL=$PWD/go-on stopping_at 'write:*/trainer.jsonl#12' plm-pipeline up pipeline.yaml trainer \
  >up.log 2>&1 </dev/null &
up=$!
wait_for 30 test -e run/supervisor.lock
plm-packer -c pipeline.yaml >packer.log 2>&1 </dev/null & # of nobody: it serves both
packer=$!
"${apart[@]}" --set metrics.prometheus=127.0.0.1:0 >apart.log 2>&1 </dev/null &
beside=$!
evaluator() { plm-pipeline ps --json | jq -e '.[] | select(.stage == "evaluator") | .pid'; }
wait_for 30 evaluator
first=$(evaluator)
kill -KILL "$first"
wait_for 30 grep -qE 'evaluator.0 was killed by signal 9 .*; restarting it in' apart.log
restarted() { [ "$(evaluator || echo "$first")" != "$first" ]; } # none is listed while it is started
wait_for 30 restarted
expect 1 "${apart[@]}"
says err 'supervisor-evaluator'
jq -e 'has("prometheus") | not' run/endpoints.json >/dev/null || fail "endpoints.json: $(cat run/endpoints.json)"
touch go-on
wait "$up" || fail "the run ended with $?: $(tail -n 5 up.log)"
wait "$beside" || fail "--apart ended with $?: $(tail -n 5 apart.log)"
kill "$packer"
drained "$packer" "the packer"
grep -q 'prometheus: .*127.0.0.1:0' run/evaluator.yaml || fail "--set is not in evaluator.yaml"
! grep -q 'prometheus: .*127.0.0.1:0' run/pipeline.yaml || fail "--apart has changed pipeline.yaml"
[ -e run/DONE ] || fail "no DONE"
expect 0 "${apart[@]}" # nothing is left to do

# ---- a program that is missing fails for a cause that stays ----
mkdir programs && cp "$(command -v plm-pipeline)" programs/
expect 7 programs/plm-pipeline up pipeline.yaml evaluator --apart --run other
says err 'evaluator.0 could not be started: cannot run .*/plm-evaluator: No such file or directory'
expect 7 plm-pipeline up pipeline.yaml evaluator --run other --launch evaluator=no-such-launcher
jq -e '.exit == 7' other/FAILED >/dev/null || fail "FAILED: $(cat other/FAILED)"

# ---- as process 1 ----
inside=(unshare -rpf --mount-proc)
if ! "${inside[@]}" true 2>/dev/null; then
  echo "no namespaces of processes here: process 1 was not tried"
  exit 0
fi
# starts_as_one NAME COMMAND...: in the background, with an orphan that ends later; $outer is unshare, $one process 1
starts_as_one() {
  "${inside[@]}" sh -c '(until [ -e orphan ]; do sleep 0.05; done &); exec "$@"' sh "${@:2}" >"$1.log" 2>&1 </dev/null &
  outer=$!
  is_one() { one=$(ps -o pid= --ppid "$outer" | tr -d ' ') && [ "$(cat "/proc/$one/comm")" = "$1" ]; }
  wait_for 30 is_one plm-pipeline
}
ended_with() { # CODE
  local code=0
  wait "$outer" || code=$?
  [ "$code" -eq "$1" ] || fail "process 1 ended with $code instead of $1: $(cat ./*.log)"
}
starts_as_one one "${apart[@]}" --run waits
ready() { grep -q 'evaluator.0 is ready' one.log; }
wait_for 30 ready
touch orphan
no_child_but() { [ "$(ps -o comm= --ppid "$one")" = "$1" ]; } # a zombie would be listed
wait_for 30 no_child_but plm-evaluator
kill -TERM "$one"
ended_with 143

# It waits for the lock of an evaluator that nobody supervises, and does not watch for signals yet.
plm-evaluator -c pipeline.yaml --run waits >evaluator.log 2>&1 </dev/null &
holder=$!
wait_for 30 jq -e .pid waits/evaluator.lock
starts_as_one early "${apart[@]}" --run waits
early() { grep -q 'waiting for the evaluator of an earlier' early.log; }
wait_for 30 early
kill -TERM "$one"
ended_with 143
kill "$holder"
drained "$holder" "the evaluator that held the lock"
