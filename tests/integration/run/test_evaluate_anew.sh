#!/usr/bin/env bash
# If a resume publishes a step again with other weights, that is another checkpoint: it is evaluated
# again, and readers take its last line. With the same weights nothing is repeated. If other sequences are in the run's
# corpus by now, nothing is evaluated, although no trainer starts which would refuse them.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet

damage() { # damage STEP…: these checkpoints no longer verify, so a resume takes an earlier one
  for step in "$@"; do
    printf 'x' | dd of="run/checkpoints/step_0000000$step/model.safetensors" bs=1 seek=5000 conv=notrunc status=none
  done
}
steps() { jq -sc '[.[].step]' run/evaluator.jsonl; }

expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8
jq -se 'all(.[]; .identity | test("^[0-9a-f]{32}$"))' run/evaluator.jsonl >/dev/null || fail "no identity"
damage 8
expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8
[ "$(steps)" = '[0,4,8]' ] || fail "the same weights were evaluated again: $(steps)"

damage 4 8
expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8 --set trainer.optimizer.lr_hidden=0.05
[ "$(steps)" = '[0,4,8,4,8]' ] || fail "other weights were not evaluated: $(steps)"
jq -se '[.[] | select(.step == 4) | .identity] | unique | length == 2' run/evaluator.jsonl >/dev/null ||
  fail "two checkpoints have one identity"
expect 0 plm-pipeline checkpoints run --json
jq -s '[.[] | {step, identity, loss}] | group_by(.step) | map(.[-1])' run/evaluator.jsonl >last
jq 'map({step, identity, loss})' out | cmp - last || fail "checkpoints shows another line's loss"
expect 0 plm-pipeline metrics --run run --plot
expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8 --set trainer.optimizer.lr_hidden=0.05
[ "$(steps)" = '[0,4,8,4,8]' ] || fail "evaluated a third time: $(steps)"

was=$(jq -r .fingerprint corpus/corpus.json)
mv corpus kept
small_fasta other.fasta 60 5
expect 0 plm-pipeline ingest other.fasta --corpus corpus
is=$(jq -r .fingerprint corpus/corpus.json)
for how in --dry-run -q; do
  expect 2 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8 --set trainer.optimizer.lr_hidden=0.05 "$how"
  says err "corpus .*/corpus: the run was trained on corpus $was, but this corpus is $is\$"
done
[ "$(steps)" = '[0,4,8,4,8]' ] || fail "evaluated on another corpus: $(steps)"
rm -r corpus
mv kept corpus
expect 0 plm-pipeline up pipeline.yaml --run run --set trainer.steps=8 --set trainer.optimizer.lr_hidden=0.05
