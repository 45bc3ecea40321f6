#!/usr/bin/env bash
# A set of evaluator.sets whose classes the model does not know, which only the evaluator can see: each checkpoint gets
# a line that says why, and is evaluated on everything else.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# labelled NAME CLASS CLASS: a corpus whose sequences have one of two classes
labelled() {
  awk -v a="$2" -v b="$3" 'BEGIN {print "sequence,kind,set"} /^>/ {next}
    {n++; print $0 "," (n % 2 ? a : b) "," (n % 3 ? "train" : "valid")}' s.fasta >"$1.csv"
  expect 0 plm-pipeline ingest "$1.csv" --corpus "$1" --labels kind --split-column set
}
small_fasta s.fasta 90 3
labelled corpus acid base
labelled other base acid
labelled alien hot cold
small_config pipeline.yaml transformer
set -- -c pipeline.yaml --set trainer.steps=2 --set trainer.checkpoint.every=1 --set trainer.objective=classification \
  --set 'trainer.labels=[kind]' --set trainer.schedule.warmup_steps=0 --set trainer.schedule.cooldown_steps=0 \
  --set trainer.optimizer.name=adamw --set 'evaluator.sets=[{name: alien, corpus: alien}, {name: other, corpus: other}]'
plm-packer "$@" >packer.log 2>&1 &
expect 0 plm-trainer "$@"

reason='the model knows no class of the column kind of labels'
for step in 0 1 2; do
  printf '[%d,"corpus",true]\n[%d,"alien",false]\n[%d,"other",true]\n' $step $step $step
done >wanted
expect 0 plm-evaluator "$@"
says err "step 1 alien valid: $reason"
jq -c '[.step, .set, has("loss")]' run/evaluator.jsonl | diff wanted - || fail "$(cat run/evaluator.jsonl)"
jq -r 'select(.set == "alien") | .task_skipped' run/evaluator.jsonl >reasons
[ "$(grep -c "^$reason" reasons)" = 3 ] || fail "no reason: $(cat reasons)"

# What could not be evaluated is reported, so it is not tried again.
cp run/evaluator.jsonl before.jsonl
expect 0 plm-evaluator "$@"
cmp run/evaluator.jsonl before.jsonl || fail "reported again: $(cat run/evaluator.jsonl)"
