#!/usr/bin/env bash
# 1,300 connections that do nothing, to each port of a trainer and an evaluator with 256 descriptors:
# every checkpoint is published and evaluated, and the run ends as usual.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer

(
  ulimit -n 256
  exec plm-trainer -c pipeline.yaml --set trainer.checkpoint.every=1 \
    --set trainer.checkpoint.max_failed_checkpoints=1 2>trainer.err
) &
trainer=$!
wait_for 30 jq -e '.feed and .announcements' run/endpoints.json
(
  ulimit -n 256
  exec plm-evaluator -c pipeline.yaml 2>evaluator.err
) &
evaluator=$!
wait_for 30 jq -e '.evaluation_feed' run/endpoints.json

# crowd ENDPOINT: opens connections, and opens those again that are closed
crowd() {
  local port=${1##*:} i fd open=()
  ulimit -n 4096
  while :; do
    for ((i = 0; i < 1300; i++)); do
      [ -z "${open[i]:-}" ] || continue
      { exec {fd}<>"/dev/tcp/127.0.0.1/$port"; } || return 0
      open[i]=$fd
    done
    sleep 0.2
    for ((i = 0; i < 1300; i++)); do # readable, although nothing is sent: it was closed
      read -r -t 0 -u "${open[i]}" || continue
      fd=${open[i]}
      exec {fd}>&-
      open[i]=
    done
  done
}
crowd "$(jq -r .feed run/endpoints.json)" 2>/dev/null &
crowd "$(jq -r .announcements run/endpoints.json)" 2>/dev/null &
crowd "$(jq -r .evaluation_feed run/endpoints.json)" 2>/dev/null &
wait_for 30 grep -q 'broke a connection' trainer.err
wait_for 30 grep -q 'broke a connection' evaluator.err

plm-packer -c pipeline.yaml 2>packer.err &
wait "$trainer" || {
  tail -n 20 trainer.err >&2
  fail "the trainer ended with $?"
}
wait "$evaluator" || {
  tail -n 20 evaluator.err >&2
  fail "the evaluator ended with $?"
}
for step in 1 2 3 4 5 6 7 8 9 10 11 12; do
  ! grep -q "checkpoint $step FAILED" trainer.err || fail "checkpoint $step failed"
  [ "$(jq -s "map(select(.step == $step and .skipped == null)) | length" run/evaluator.jsonl)" -ge 1 ] ||
    fail "checkpoint $step was not evaluated"
done
plm-pipeline checkpoints run --verify >/dev/null || fail "a checkpoint is damaged"
[ -e run/DONE ] || fail "the run is not complete"
