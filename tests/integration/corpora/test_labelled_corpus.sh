#!/usr/bin/env bash
# A corpus with labels trains a language model to the same bits as the same corpus without them, with pieces of long
# sequences, and proves itself: labels travel with the chunks, and change nothing else.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus plain 300
plm-pipeline corpus plain --fasta --split train >train.fasta
{
  echo name,sequence,tm,family,ss,set
  awk '/^>/ {name = substr($1, 2); next}
    {ss = $0; gsub(/[A-H]/, "H", ss); gsub(/[I-Q]/, "E", ss); gsub(/[R-Z]/, "C", ss)
     printf "%s,%s,%s,%s,%s,%s\n", name, $0, NR % 7 ? NR / 4 : "", NR % 3, ss, NR % 20 ? "train" : "valid"}' train.fasta
} >table.csv
plm-pipeline ingest table.csv --corpus labelled --labels tm,family:class,ss --split-column set >/dev/null 2>&1 ||
  fail "ingest with labels"
plm-pipeline ingest table.csv --corpus unlabelled --split-column set >/dev/null 2>&1 || fail "ingest without labels"
plm-pipeline corpus labelled --verify >/dev/null 2>&1 || fail "the corpus does not prove itself"
[ "$(jq .fingerprint labelled/corpus.json)" != "$(jq .fingerprint unlabelled/corpus.json)" ] ||
  fail "labels do not change the fingerprint"

small_config pipeline.yaml transformer
steps=(--set trainer.steps=6 --set trainer.checkpoint.every=6 --set data.max_length=64)
for truncate in split random_crop; do
  for corpus in labelled unlabelled; do
    plm-pipeline up pipeline.yaml trainer packer --run $corpus.$truncate --set corpus=$corpus \
      --set data.truncate=$truncate "${steps[@]}" >up.log 2>&1 </dev/null || fail "$corpus: $(tail -n 5 up.log)"
    exact_metrics $corpus.$truncate/trainer.jsonl >$corpus.exact
  done
  cmp labelled.exact unlabelled.exact || fail "labels change the metrics with truncate: $truncate"
  cmp {labelled,unlabelled}.$truncate/checkpoints/step_00000006/model.safetensors || fail "labels change the model"
done
plm-pipeline trace -c pipeline.yaml --run labelled.split --step 4 --verify >trace.log 2>&1 ||
  fail "trace --verify: $(cat trace.log)"
