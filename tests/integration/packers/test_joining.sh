#!/usr/bin/env bash
# A packer that knows only one consumer learns the other's port from it, whichever binds first, and again
# after a restart. `ps` shows the packer, with a supervisor and without one. If no packer of the run is
# left, the supervisor tells the trainer, which waits 30 s for one that joins.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer

endpoint() { jq -er ".$2" "$1/endpoints.json"; }
row() { plm-pipeline ps --run "$1" --json | jq -e "any(.[]; $2)"; }
peer() { jq -e "any(.[]; .pid == $3)" "$1/peers.$2.json"; }
# Little credit, so that a packer packs, and has a rate, all the time.
long=(--set trainer.steps=1000000 --set trainer.checkpoint.every=1000000 --set network.credit_bytes=65536)
given_up=("${long[@]}" --set packer.restart=no --set network.wait_packers_s=600)
served='.stage == "packer" and .instance == 0 and .state == "ready" and .rate > 0'
kill_packer() { # RUN: kills the supervisor's packer, which is not started again
  wait_for 30 row "$1" "$served"
  kill -KILL "$(plm-pipeline ps --run "$1" --json | jq '.[] | select(.stage == "packer").pid')"
  wait_for 20 jq -e '.packers == "fatal"' "$1/endpoints.json"
}

# ---- nobody joins: checked at the end of this script ----
plm-pipeline up pipeline.yaml --run lonely "${given_up[@]}" >lonely.log 2>&1 </dev/null &
lonely=$!
kill_packer lonely

# ---- without a supervisor: trainer, packer, then the evaluator ----
expect 3 plm-pipeline ps --run run
plm-trainer -c pipeline.yaml --run run "${long[@]}" >trainer.log 2>&1 </dev/null &
trainer=$!
wait_for 20 endpoint run feed
expect 0 plm-pipeline ps --run run
says out "trainer\.0 .* $trainer +ready"
plm-packer --corpus corpus --connect "$(endpoint run feed)" --keys run/keys >packer.log 2>&1 </dev/null &
packer=$!
wait_for 20 row run ".stage == \"packer\" and .pid == $packer and .state == \"joined\" and .ready
  and .node == \"$(uname -n)\" and .restarts == 0 and .age_s > 0 and .rate > 0 and .queue >= 0"
for time in 1 2; do # the second time at another port
  plm-evaluator -c pipeline.yaml --run run "${long[@]}" >>evaluator.log 2>&1 </dev/null &
  evaluator=$!
  wait_for 20 peer run evaluator "$packer"
  expect 0 plm-pipeline ps --run run --json
  jq -e "map([.stage, .pid]) == [[\"trainer\", $trainer], [\"evaluator\", $evaluator],
    [\"packer\", $packer]]" out >/dev/null || fail "ps: $(cat out)"
  if [ "$time" = 1 ]; then # trainer and evaluator have rates; the evaluator says how many checkpoints wait
    wait_for 20 row run '.stage == "trainer" and .rate > 0'
    wait_for 20 row run '.stage == "evaluator" and .rate > 0 and .queue == 0'
    expect 0 plm-pipeline ps --run run
    says out '^trainer\.0 .* [0-9.]+ k/s'
    says out '^evaluator\.0 .* [0-9.]+ k/s +0$'
  fi
  kill "$evaluator"
  drained "$evaluator" "the evaluator"
  [ ! -e run/peers.evaluator.json ] || fail "the evaluator left its peers behind"
done
[ "$(grep -c '^{' run/evaluator.jsonl)" -ge 1 ] || fail "nothing was evaluated with the packer"

# ---- the packer knows the evaluator, the trainer starts again ----
kill "$packer" "$trainer"
drained "$packer" "the packer"
drained "$trainer" "the trainer"
[ ! -e run/peers.trainer.json ] || fail "the trainer left its peers behind"
plm-evaluator -c pipeline.yaml --run run "${long[@]}" >>evaluator.log 2>&1 </dev/null &
evaluator=$!
wait_for 20 endpoint run evaluation_feed
plm-packer --corpus corpus --connect "$(endpoint run evaluation_feed)" --keys run/keys >packer.log 2>&1 </dev/null &
packer=$!
wait_for 20 peer run evaluator "$packer"
plm-trainer -c pipeline.yaml --run run "${long[@]}" >>trainer.log 2>&1 </dev/null &
trainer=$!
wait_for 20 peer run trainer "$packer"
kill "$trainer"
drained "$trainer" "the trainer"
kill "$evaluator" "$packer"
drained "$evaluator" "the evaluator"
drained "$packer" "the packer"
wait_for 20 expect 3 plm-pipeline ps --run run

# ---- with a supervisor whose packer has failed for good: one that joins serves the run ----
plm-pipeline up pipeline.yaml --run given "${given_up[@]}" >up.log 2>&1 </dev/null &
up=$!
kill_packer given
plm-packer --corpus corpus --connect "$(endpoint given feed)" --run given >packer.log 2>&1 </dev/null &
packer=$!
wait_for 20 row given ".stage == \"packer\" and .instance == 1 and .pid == $packer and .state == \"joined\""
wait_for 20 peer given evaluator "$packer"
expect 0 plm-pipeline restart packer.0 --run given
wait_for 20 jq -e 'has("packers") | not' given/endpoints.json
wait_for 20 row given '.stage == "packer" and .instance == 0 and .state == "ready" and .restarts == 1'
expect 0 plm-pipeline down --run given
status=0
wait "$up" || status=$?
[ "$status" -eq 143 ] || fail "up ends with $status: $(tail -n 5 up.log)"
kill "$packer"
drained "$packer" "the packer"

# ---- nobody joined: published, exit code 4, long before network.wait_packers_s (600) ----
status=0
wait "$lonely" || status=$?
[ "$status" -eq 4 ] || fail "up ends with $status: $(tail -n 20 lonely.log)"
says lonely.log 'has waited [1-9][0-9]+ s for a packer; packers connect to tcp://127.0.0.1:[0-9]+ .*--keys /.*/lonely/keys'
waited=$(sed -n 's/.*no packer served the trainer for \([0-9]*\) s.*/\1/p' lonely.log | tail -n 1)
[ "${waited:-0}" -ge 30 ] && [ "$waited" -lt 600 ] || fail "the trainer waited '$waited' s: $(tail -n 20 lonely.log)"
step=$(tail -n 1 lonely/trainer.jsonl | jq .step)
expect 0 plm-pipeline checkpoints "$(printf 'lonely/checkpoints/step_%08d' "$step")" --verify
jq -e 'has("packers") | not' lonely/endpoints.json >/dev/null || fail "the supervisor's mark outlives it"
