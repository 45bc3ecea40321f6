#!/usr/bin/env bash
# trainer.profile.steps and `up --profile`: the trace has every operator of the steps that were named and of no other, its
# events add up to step_ms, and it changes no bit of the run. `plm-pipeline profile` adds them up.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config patch_unet
short=(--set trainer.steps=8 --set trainer.checkpoint.every=2 --set trainer.optimizer.momentum_warmup_steps=4
  --set trainer.schedule.warmup_steps=2 --set trainer.schedule.cooldown_steps=2)
events() { jq '[.traceEvents[] | select(.ph == "X")]' "$1/profile.json"; }
steps_of() { events "$1" | jq -r '[.[] | select(.cat == "step") | .name] | join(",")'; }

run_undisturbed "$PLM_TMP/plain" "${short[@]}"
[ ! -e plain/profile.json ] || fail "a profile that nobody wanted"
run_undisturbed "$PLM_TMP/run" "${short[@]}" --set trainer.profile.steps=4-5
same_run plain run 8
same_checkpoints plain run

# ---- the trace ---------------------------------------------------------------------------------------
[ "$(steps_of run)" = "step 4,step 5" ] || fail "the profile has other steps: $(steps_of run)"
events run >events.json
partitioned 0 0 <events.json
for step in 4 5; do
  # microseconds with three digits, and milliseconds
  ns=$(events run | jq --arg name "step $step" '.[] | select(.name == $name and .tid == 0) | .dur * 1000 | round')
  ms=$(jq "select(.step == $step) | .step_ms * 1000000 | round" run/trainer.jsonl)
  [ "$ns" = "$ms" ] || fail "step $step took $ms ns, and $ns ns in the profile"
done
# all operators of both steps: as many as two micro-batches need, twice
jq -r '.[] | select(.tid == 0) | .name' events.json >operators
for name in linear_forward linear_backward_weight attention_forward attention_backward mix_norm_forward head_train \
  choose_targets muon_step adam_step average_step decide_update zero copy; do
  count=$(grep -cx $name operators || true)
  [ "$count" -gt 0 ] || fail "the profile has no $name"
  [ $((count % 2)) -eq 0 ] || fail "two steps have $count of $name"
done
[ "$(jq '[.[] | select(.name == "head_train")] | length' events.json)" -eq 4 ] || fail "not two micro-batches a step"
[ "$(jq '[.[] | select(.tid == 1 and (.name | startswith("micro-batch ")))] | length' events.json)" -eq 4 ] ||
  fail "the parts of the steps"
[ "$(jq '[.[] | select(.name == "data wait")] | length' events.json)" -eq 2 ] || fail "the wait for data"
[ "$(jq '[.[] | select(.name == "take a snapshot")] | length' events.json)" -eq 1 ] || fail "the snapshot of step 4"
[ "$(jq '[.[] | select(.tid == 4 and .name == "write checkpoint 4")] | length' events.json)" -eq 1 ] ||
  fail "the written checkpoint"
# FLOPs of attention: those of the backward pass are 10 to 4
jq -e '[.[] | select(.name == "attention_forward") | .args.flops] | add > 0' events.json >out ||
  fail "attention has no FLOPs"
jq -e '([.[] | select(.name == "attention_backward") | .args.flops] | add) * 4 ==
  ([.[] | select(.name == "attention_forward") | .args.flops] | add) * 10' events.json >out || fail "FLOPs of attention"
# what a trace viewer needs of each event
jq -e 'all(.[]; (.name | type == "string") and .ph == "X" and (.ts >= 0) and (.dur >= 0) and (.pid == 0) and
  (.tid >= 0) and (.cat | type == "string"))' events.json >out || fail "an event without a place or a time"

# ---- the table ---------------------------------------------------------------------------------------
expect 0 plm-pipeline profile run
says out '^steps 4 to 5 on cpu \(.*\), fp32, 2 threads: [0-9.]+ ms a step$'
says out '^measured limits: [0-9.]+ GFLOP/s in a large product, [0-9.]+ GB/s in a copy$'
says out '^linear_backward_weight +[0-9]+ +[0-9.]+ +[0-9.]+ % +[0-9.]+ +[0-9.]+ +[0-9]+ %$'
says out '^all +[0-9.]+ +100.0 %$'
says out '^write checkpoint +(0.5|1) +[0-9.]+ '
expect 0 plm-pipeline profile run/profile.json --json
jq -e '([.in_a_step[].share] | add) - 1 | fabs < 1e-9' out >sum || fail "the shares add up to $(cat sum)"
jq -e '.in_a_step[] | select(.name == "head_train") | .calls == 2' out >calls || fail "calls of head_train"
expect 0 plm-pipeline profile --run run --shapes
says out '^linear_forward [0-9]+ x 64 x 192 '
expect 0 plm-pipeline profile run --rank 0
expect 2 plm-pipeline profile run --rank 1
says err 'the profile has no rank 1; its ranks are 0 to 0'
expect 1 plm-pipeline profile plain
says err 'plain has no profile'
says err 'up --profile 10-12'
expect 1 plm-pipeline profile nothing.json
says err 'there is no file or folder nothing.json'
expect 1 plm-pipeline profile run/trainer.jsonl
says err 'run/trainer.jsonl.*this is no profile of plm-pipeline'

# ---- resuming ----------------------------------------------------------------------------------------
# a run that is stopped within the steps has a profile of those before, which stays if those after are not more
start_packer "$PLM_TMP/again"
start_trainer_for "$PLM_TMP/again" 5 "${short[@]}" --set trainer.profile.steps=3-7
kill -TERM "$trainer_pid"
kill -CONT "$trainer_pid"
wait "$trainer_pid"
last=$(newest_step again)
[ "$last" -ge 5 ] && [ "$last" -lt 7 ] || fail "it stopped at step $last"
awk '/stopped after step/ { published = 1 } /the profile of steps 3 to/ { exit !published }' trainer.log ||
  fail "the profile was written before the last checkpoint"
[ "$(steps_of again)" = "$(seq -f 'step %g' -s , 3 "$last")" ] || fail "stopped at $last, profiled $(steps_of again)"
echo "{" >again/profile.json.tmp # of one that was killed
run_trainer "$PLM_TMP/again" "${short[@]}" --set trainer.profile.steps=3-7 || fail "the resume"
[ ! -e again/profile.json.tmp ] || fail "part of a profile was left"
[ "$(steps_of again)" = "$(seq -f 'step %g' -s , 3 "$last")" ] || fail "resumed at $last, profiled $(steps_of again)"
grep -q "of steps 3 to $last stays, because this start has only recorded steps $((last + 1)) to 7" trainer.log ||
  fail "nobody says that the earlier profile stays"
same_checkpoints plain again
stop_packer
# it is moved aside with what is later than the checkpoint to which a run goes back
expect 0 plm-pipeline up pipeline.yaml trainer packer --run "$PLM_TMP/again" "${short[@]}" --profile 7 -q \
  --resume "$PLM_TMP/again/checkpoints/step_00000004"
[ "$(steps_of again/previous-1)" = "$(seq -f 'step %g' -s , 3 "$last")" ] || fail "the earlier profile was not moved"
[ "$(steps_of again)" = "step 7" ] || fail "after going back, profiled $(steps_of again)"
same_checkpoints plain again
start_packer "$PLM_TMP/again"
# of steps that are over, there is none, and somebody says so
rm again/profile.json
run_trainer "$PLM_TMP/again" "${short[@]}" --set trainer.steps=9 --set trainer.profile.steps=3-7 || fail "9 steps"
[ ! -e again/profile.json ] || fail "a profile of steps that were over"
grep -q 'nothing is profiled: the run continues after step 8, and trainer.profile.steps ends at 7' trainer.log ||
  fail "nobody says that nothing is profiled"
stop_packer

# ---- what is refused ---------------------------------------------------------------------------------
for wrong in '12-10=the last step, 10, is before the first, 12; write 10-12' '0=there is no step 0; the first step is 1' \
  '0-3=there is no step 0' '7-9=step 9 is beyond the last step, 8 \(trainer.steps\)' \
  'ten=expected a step or FIRST-LAST, for example 10-12, found "ten"' '3-=expected a step or FIRST-LAST' \
  '1-101=101 steps are too many; a profile has at most 100'; do
  range=${wrong%%=*}
  expect 2 plm-pipeline validate pipeline.yaml "${short[@]}" --set "trainer.profile.steps=$range"
  says err "trainer.profile.steps: ${wrong#*=}"
  expect 2 plm-pipeline up pipeline.yaml "${short[@]}" --profile "$range" --dry-run
  says err "^plm-pipeline: --profile: ${wrong#*=}"
done
expect 2 plm-pipeline up pipeline.yaml packer --profile 1-2 --dry-run
says err '--profile needs the trainer'

# ---- up ----------------------------------------------------------------------------------------------
expect 0 plm-pipeline up pipeline.yaml trainer packer --run "$PLM_TMP/supervised" "${short[@]}" --profile 2 -q
[ "$(steps_of supervised)" = "step 2" ] || fail "up --profile 2 has $(steps_of supervised)"
same_checkpoints plain supervised
# which the run does not keep
expect 0 plm-pipeline config -c supervised/pipeline.yaml --json
jq -e '."trainer.profile.steps".value == null' out >kept || fail "the run keeps --profile: $(cat out)"
expect 0 plm-pipeline up pipeline.yaml "${short[@]}" --run "$PLM_TMP/planned" --profile 2 --dry-run
says out ' --set trainer.profile.steps=2-2$'
