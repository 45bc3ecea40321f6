#!/usr/bin/env bash
# A checkpoint that verifies and whose weights are finite, but whose model computes NaN: the evaluator of a run reports
# it once as skipped, evaluates the others, and evaluates it when it has other weights.
. "$PLM_ROOT/tests/support/shell/lib.sh"
tool=$PLM_BUILD/tests/evaluator/watch/overflow/tool_overflow

small_corpus corpus 120
small_config pipeline.yaml transformer
set -- -c pipeline.yaml --set trainer.steps=2 --set trainer.checkpoint.every=1 --set 'evaluator.splits=[valid, test]' \
  --set trainer.schedule.warmup_steps=0 --set trainer.schedule.cooldown_steps=0
plm-packer "$@" >packer.log 2>&1 &
packer=$!
expect 0 plm-trainer "$@"
bad=run/checkpoints/step_00000001
cp -r $bad kept
expect 0 "$tool" $bad
expect 0 plm-pipeline checkpoints run --verify --json
jq -e 'map(.step) == [0, 1, 2] and all(.valid)' out >/dev/null || fail "they do not verify: $(cat out)"

# lines: what has been reported, without numbers; a line that is skipped has its reason
lines() { jq -c '[.step, .split // .skipped, .corrupt // false, (.loss // 0) > 0]' run/evaluator.jsonl; }
reason='cannot be evaluated: the model computes -?nan for sequence 0 \(from 0\) of its split'
cat >wanted <<'END'
[0,"valid",false,true]
[0,"test",false,true]
[1,"REASON",true,false]
[2,"valid",false,true]
[2,"test",false,true]
END
expect 0 plm-evaluator "$@"
says err "step 1 is skipped: $reason"
lines | sed -E "s/$reason/REASON/" | diff wanted - || fail "another report"

# What was skipped is neither reported nor evaluated again.
cp run/evaluator.jsonl before.jsonl
expect 0 plm-evaluator "$@"
cmp run/evaluator.jsonl before.jsonl || fail "reported again: $(cat run/evaluator.jsonl)"
! grep 'is skipped' err || fail "said again: $(cat err)"

# With other weights it is another checkpoint.
rm -r $bad
mv kept $bad
expect 0 plm-evaluator "$@"
printf '[1,"%s",false,true]\n' valid test >wanted
lines | tail -n +6 | diff wanted - || fail "the checkpoint with other weights"
kill "$packer"
drained "$packer" "the packer"
