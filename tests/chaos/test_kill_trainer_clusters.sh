#!/usr/bin/env bash
# Kills by SIGKILL between two steps while a run of the transformer samples clusters: see
# kill_trainer.sh. What differs from other runs is the position in the data, so two moments are enough.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
small_fasta corpus.fasta 400
grep '^>' corpus.fasta | awk '{name = substr($1, 2); print "c" NR * 7 % 130 "\t" name}' >clusters.tsv
plm-pipeline ingest corpus.fasta --corpus corpus --split train=0.8,valid=0.1,test=0.1 -q \
  --clusters clusters.tsv || fail "ingest"
trainer_config transformer
sed -i 's/^data: {/&sampling: clusters, /' "$PLM_TMP/pipeline.yaml"
kill_and_compare "clusters" 'lines 7
lines 38'
documents=$(plm-pipeline corpus corpus --json 2>/dev/null | jq .splits.train.documents)
plm-pipeline trace -c "$PLM_TMP/pipeline.yaml" --step 60 --json >last || fail "trace"
jq -se 'map(.epoch) | max >= 1' last >/dev/null || fail "the run did not reach a second epoch"
jq -se --argjson n "$documents" 'all(.[].documents[]; .index < $n)' last >/dev/null || fail "index"
