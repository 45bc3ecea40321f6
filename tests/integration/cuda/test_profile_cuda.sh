#!/usr/bin/env bash
# A profile of a run on an emulated device: recordings would hide the operators, so the profiled steps run without them, and
# no bit changes. What the device computed adds up to the step, and so does what the host did.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=${emulated:?}
settings=(--set trainer.device=cuda --set trainer.steps=6)
events() { jq '[.traceEvents[] | select(.ph == "X")]' run/profile.json; }

run_undisturbed "$PLM_TMP/plain" "${settings[@]}"
PLM_EMULATED_TRACE=$PLM_TMP/streams run_undisturbed "$PLM_TMP/run" "${settings[@]}" --set trainer.profile.steps=4-5
same_run plain run 6
same_checkpoints plain run
# the steps before and after are recorded and replayed as ever
grep -q '^replay' streams || fail "nothing was replayed in the steps that were not profiled"

events >events.json
partitioned 0 0 <events.json
partitioned 0 2 <events.json
for step in 4 5; do
  ns=$(jq --arg name "step $step" '.[] | select(.name == $name and .tid == 0) | .dur * 1000 | round' events.json)
  ms=$(jq "select(.step == $step) | .step_ms * 1000000 | round" run/trainer.jsonl)
  [ "$ns" = "$ms" ] || fail "step $step took $ms ns, and $ns ns in the profile"
done
# each operator was launched by the host and computed by the device
jq -e '([.[] | select(.cat == "operator") | .name] | sort) as $done |
  ([.[] | select(.cat == "launch" and .name != "zero" and .name != "copy" and (.name | endswith("_beside") | not)) | .name] |
    sort) as $launched | ($done | length) > 50 and $done == $launched' events.json >out ||
  fail "operators that were launched, and those that the device computed, differ"
jq -e 'all(.[] | select(.cat == "operator"); .tid == 2)' events.json >out || fail "an operator on another track"
# the checkpoint of step 4 is copied beside step 5
[ "$(jq '[.[] | select(.tid == 3 and .name == "download_beside")] | length' events.json)" -ge 3 ] ||
  fail "the copies of a checkpoint"
[ "$(jq '[.[] | select(.tid == 4)] | length' events.json)" -ge 1 ] || fail "the written checkpoint"

expect 0 plm-pipeline profile run
says out '^steps 4 to 5 on cuda '
says out '^idle '
says out '^linear_forward '
