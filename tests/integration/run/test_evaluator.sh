#!/usr/bin/env bash
# The evaluator without a supervisor: it starts late and misses nothing, is killed and evaluates nothing twice, skips a
# corrupt checkpoint and evaluates it once it is intact, reports checkpoints that were deleted before, and
# gives the same numbers with another number of threads and without a run.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet

# A run without an evaluator: everything is published, nothing is evaluated.
plm-packer -c pipeline.yaml --run run >packer.log 2>&1 &
packer=$!
expect 0 plm-trainer -c pipeline.yaml --run run
[ ! -s run/evaluator.jsonl ] || fail "somebody evaluated"
cp -r run kept

# One checkpoint is damaged, one is deleted.
printf 'x' | dd of=run/checkpoints/step_00000008/model.safetensors bs=1 seek=5000 conv=notrunc status=none
rm -r run/checkpoints/step_00000004

# It is killed three times: before its first line, and before the next one.
for line in 1 2 1; do
  stopping_at "write:*/evaluator.jsonl#$line" plm-evaluator -c pipeline.yaml --run run >>evaluator.log 2>&1 </dev/null &
  evaluator=$!
  until_stopped "$evaluator" || fail "the evaluator ended before its line $line"
  kill -KILL "$evaluator"
  wait "$evaluator" 2>/dev/null || true
done
[ "$(wc -l <run/evaluator.jsonl)" -eq 1 ] || fail "not one line: $(cat run/evaluator.jsonl)"
printf '{"v":1,"step":12,"spl' >>run/evaluator.jsonl # torn by a crash
expect 0 plm-evaluator -c pipeline.yaml --run run
jq -se '[.[] | select(.loss) | .step] | sort == [0, 12]' run/evaluator.jsonl >/dev/null ||
  { cat run/evaluator.jsonl >&2; fail "not once each"; }
jq -se '[.[] | select(.skipped) | .step] | sort == [4, 8]' run/evaluator.jsonl >/dev/null || fail "skipped steps"
jq -se 'any(.[]; .step == 4 and .skipped == "deleted before evaluation")' run/evaluator.jsonl >/dev/null ||
  fail "the deleted one is not named"
! grep -q evaluation_feed run/endpoints.json ||
  fail "the endpoint of an evaluator that has ended is still there: $(cat run/endpoints.json)"
cat err >>evaluator.log
says evaluator.log 'step 8 is skipped: .*does not verify'

# The damaged one is intact again: it is evaluated, the others are not evaluated again.
rm -r run/checkpoints/step_00000008
cp -r kept/checkpoints/step_00000008 run/checkpoints/
expect 0 plm-evaluator -c pipeline.yaml --run run
jq -se '[.[] | select(.loss) | .step] | sort == [0, 8, 12]' run/evaluator.jsonl >/dev/null || fail "the repaired one"

# The exact fields do not depend on the number of threads, nor on a run.
plm-packer -c pipeline.yaml --run kept >packer2.log 2>&1 &
packer2=$!
expect 0 plm-evaluator -c pipeline.yaml --run kept --threads 2
# A checkpoint that an earlier evaluator could not read, and that is gone, is reported; the other lines stay.
echo '{"v":1,"step":5,"split":"valid","skipped":"Input/output error","corrupt":false}' >>kept/evaluator.jsonl
cp kept/evaluator.jsonl before.jsonl
expect 0 plm-evaluator -c pipeline.yaml --run kept
head -n -1 kept/evaluator.jsonl | cmp - before.jsonl || fail "not one more line: $(cat kept/evaluator.jsonl)"
tail -n 1 kept/evaluator.jsonl | jq -e '.step == 5 and .skipped == "deleted before evaluation"' >/dev/null ||
  fail "the one that could not be read: $(tail -n 1 kept/evaluator.jsonl)"
kill "$packer2"
drained "$packer2" "the second packer"
exact='select(.step == 12) | del(.seconds, .lag_steps, .time, .checkpoint, .cut)'
jq -c "$exact" run/evaluator.jsonl >one.exact
jq -c "$exact" kept/evaluator.jsonl >two.exact
cmp one.exact two.exact || fail "two threads give other numbers"
kill "$packer"
drained "$packer" "the packer"
expect 0 plm-pipeline evaluate --checkpoint run/checkpoints/step_00000012 --corpus corpus --max-tokens 4000 --json
jq -c "$exact" out >once.exact
cmp one.exact once.exact || { diff one.exact once.exact >&2; fail "evaluate gives other numbers"; }
[ "$(wc -l <out)" -eq 1 ] || fail "not one object on one line"

# After a resume with another checkpoint.every, steps that were never due are not reported as deleted.
expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=16 --set trainer.checkpoint.every=3
jq -se '[.[].step] | unique == [0, 4, 8, 12, 15, 16]' run/evaluator.jsonl >/dev/null || fail "steps that never were"

# The objective decides what is evaluated, not the attention: here masked tokens of a causal model.
expect 0 plm-pipeline up pipeline.yaml --run backwards --set trainer.steps=4 --set 'model.attention.pattern=[document+causal]'
jq -se 'all(.[]; (.loss_by_mask_rate | keys) == ["0.15"])' backwards/evaluator.jsonl >/dev/null || fail "next tokens of an mlm run"

# Errors.
PLM_CUDA_LIBRARY=missing.so expect 2 plm-evaluator --run backwards --set evaluator.device=cuda
says err 'CUDA backend was not found'
expect 1 plm-pipeline evaluate --checkpoint run/checkpoints --corpus corpus
expect 2 plm-pipeline evaluate --checkpoint run/checkpoints/step_00000012
expect 2 plm-pipeline evaluate --checkpoint run/checkpoints/step_00000012 --corpus corpus --mask-rate 2
says err 'mask-rate'
