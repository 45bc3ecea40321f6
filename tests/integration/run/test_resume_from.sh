#!/usr/bin/env bash
# `up --resume PATH` goes back to a checkpoint: everything later is moved to previous-1, and the run ends
# with the same weights. `never` moves everything. Any other word is a usage error that names it.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet
expect 0 plm-pipeline up pipeline.yaml --run run
sha256sum run/checkpoints/step_00000012/{model,optimizer}.safetensors >whole.sum
exact_metrics run/trainer.jsonl >whole.exact

expect 2 plm-pipeline up pipeline.yaml --run run --resume nonsense
says err 'needs auto, never or a checkpoint folder, not nonsense'
[ ! -e run/previous-1 ] || fail "an error moved files"

expect 0 plm-pipeline up pipeline.yaml --run run --resume run/checkpoints/step_00000004
sha256sum --quiet -c whole.sum || fail "the replayed run ends with other weights"
exact_metrics run/trainer.jsonl | cmp - whole.exact || fail "the replayed run has other metrics"
jq -se '[.[].step] == [0, 4, 8, 12]' run/evaluator.jsonl >/dev/null || fail "evaluator.jsonl"
[ -d run/previous-1/checkpoints/step_00000008 ] || fail "a later checkpoint was not kept"
[ -d run/previous-1/checkpoints/step_00000012 ] || fail "the last checkpoint was not kept"
[ ! -e run/previous-1/checkpoints/step_00000004 ] || fail "the checkpoint of the resume was moved"
jq -se '[.[].step] == [range(5; 13)]' run/previous-1/trainer.jsonl >/dev/null || fail "lines that were moved"
jq -se '[.[].step] == [8, 12]' run/previous-1/evaluator.jsonl >/dev/null || fail "evaluations that were moved"

expect 0 plm-pipeline up pipeline.yaml --run run --resume never
sha256sum --quiet -c whole.sum || fail "the run that started again ends with other weights"
[ -d run/previous-2/checkpoints/step_00000000 ] || fail "never did not move everything"
jq -se '[.[].step] == [range(1; 13)]' run/previous-2/trainer.jsonl >/dev/null || fail "lines of the whole run"
