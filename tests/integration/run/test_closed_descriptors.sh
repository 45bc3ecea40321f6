#!/usr/bin/env bash
# Programs that are started with standard input, output or error closed: no file that they open gets one
# of these descriptors, so that no message ends up in it.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml unet

# nothing_on_012 PID: its first three descriptors are /dev/null
nothing_on_012() {
  local number
  for number in 0 1 2; do
    [ "$(readlink "/proc/$1/fd/$number")" = /dev/null ] || return 1
  done
}

# ---- the stages and the supervisor: each runs, and its lock is what it wrote itself
holds_lock() { [ "$(jq .pid "run/$1.lock")" = "$2" ]; }
plm-trainer -c pipeline.yaml 0<&- 1>&- 2>&- &
trainer=$!
wait_for 30 holds_lock trainer $trainer
plm-evaluator -c pipeline.yaml 0<&- 1>&- 2>&- &
evaluator=$!
wait_for 30 holds_lock evaluator $evaluator
plm-packer -c pipeline.yaml 0<&- 1>&- 2>&- &
packer=$!
plm-pipeline metrics trainer -f 0<&- 1>metrics 2>&- &
follower=$!
wait_for 60 test -s run/trainer.jsonl
wait_for 60 test -s metrics
[ "$(readlink /proc/$follower/fd/0)" = /dev/null ] || fail "descriptor 0 of plm-pipeline is a file"
[ "$(readlink /proc/$follower/fd/2)" = /dev/null ] || fail "descriptor 2 of plm-pipeline is a file"
nothing_on_012 $packer || fail "the packer: $(ls -l /proc/$packer/fd)"
kill $follower # it follows the run until a signal
wait $trainer || fail "the trainer without descriptors ended with $?"
wait $evaluator || fail "the evaluator without descriptors ended with $?"
kill $packer
wait $packer $follower || true
for file in run/trainer.lock run/evaluator.lock run/trainer.jsonl run/evaluator.jsonl run/endpoints.json; do
  jq -e . $file >/dev/null || fail "$file is not what was written: $(cat $file)"
done
[ "$(wc -l <run/trainer.jsonl)" -eq 12 ] || fail "trainer.jsonl has $(wc -l <run/trainer.jsonl) lines"
expect 0 plm-pipeline checkpoints run --verify

plm-pipeline up pipeline.yaml --run again 0<&- 1>&- 2>&- || fail "up without descriptors ended with $?"
jq -e . again/supervisor.lock >/dev/null || fail "supervisor.lock: $(cat again/supervisor.lock)"
[ "$(wc -l <again/trainer.jsonl)" -eq 12 ] || fail "the run without descriptors is not complete"

# ---- results still cannot be written or read
code=0
plm-pipeline config pipeline.yaml >&- 2>err || code=$?
[ $code -eq 1 ] || fail "config without standard output ended with $code"
code=0
plm-pipeline ingest - --corpus none <&- 2>err || code=$?
[ $code -eq 1 ] || fail "ingest without standard input ended with $code"
[ ! -e none ] || fail "a corpus was made of nothing"

# ---- the tools of the tests
tool=$PLM_BUILD/tests/common/checkpoint/safetensors/tool_safetensors
mkfifo paths
"$tool" read <paths 1>&- 2>&- &
reader=$!
exec 5>paths
is_tool() { [[ $(readlink /proc/$reader/exe) == */tool_safetensors ]] && nothing_on_012_but_0; }
nothing_on_012_but_0() {
  [ "$(readlink /proc/$reader/fd/1)" = /dev/null ] && [ "$(readlink /proc/$reader/fd/2)" = /dev/null ]
}
wait_for 10 is_tool
exec 5>&-
wait $reader || true
