#!/usr/bin/env bash
# An evaluator that waits for packers stops at once if none of them is left, however much time it has. A service
# manager that stops every process of a run at the same time, for example, stops the packers first.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml unet
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=4 --set trainer.schedule.cooldown_steps=0
mv run/evaluator.jsonl evaluated
patient=(--set trainer.stop_timeout_s=86400 --set network.wait_packers_s=3600)

plm-evaluator -c pipeline.yaml --run run "${patient[@]}" >evaluator.log 2>&1 </dev/null &
evaluator=$!
wait_for 60 grep -q 'the evaluator has waited [0-9]* s for a packer' evaluator.log
kill -TERM "$evaluator"
wait_for 60 eval '! kill -0 '"$evaluator"
drained "$evaluator" "the evaluator"
says evaluator.log 'stopped before the checkpoint was evaluated; it will be evaluated after the next start'
[ ! -s run/evaluator.jsonl ] || fail "something was reported: $(cat run/evaluator.jsonl)"
