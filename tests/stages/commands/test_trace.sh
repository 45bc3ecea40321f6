#!/usr/bin/env bash
# `plm-pipeline trace` on the sample: the steps of an epoch name every document of the split once, by
# the name it was ingested with, whichever step is asked for first.
. "$PLM_ROOT/tests/support/shell/lib.sh"

plm-pipeline ingest -q "$PLM_ROOT/tests/data/sample.fasta.gz" --corpus corpus 2>/dev/null
cat >pipeline.yaml <<'YAML'
version: 1
run: run
corpus: corpus
seed: 5
data: {max_length: 512, window_groups: 3}
trainer: {batch_tokens: 65536, micro_batch_tokens: 65536}
YAML
steps=$(("$(plm-pipeline corpus corpus --json | jq .splits.train.residues)" / 65536 + 4))
for ((step = 1; step <= steps; step++)); do plm-pipeline trace --step "$step" --json; done >all.jsonl
[ "$(wc -l <all.jsonl)" -eq $((steps * 128)) ] || fail "not 128 chunks a step"

# epoch 0: chunks 0, 1, 2 ... and every document once
jq -c 'select(.epoch == 0)' all.jsonl >epoch.jsonl
jq -se 'map(.chunk) == [range(length)]' epoch.jsonl >/dev/null || fail "chunks are not in order"
tail -n 1 all.jsonl | jq -e '.epoch == 1' >/dev/null || fail "the second epoch was not reached"
documents=$(plm-pipeline corpus corpus --json | jq .splits.train.documents)
jq -se --argjson n "$documents" '[.[].documents[].index] | sort == [range($n)]' epoch.jsonl \
  >/dev/null || fail "not every document once"
jq -se 'all(.[].documents; . as $d | all(range(1; length);
        $d[.].start >= $d[. - 1].start + $d[. - 1].length)
        and ($d[-1].start + $d[-1].length <= 512))' epoch.jsonl >/dev/null || fail "overlap"
# patch_unet of three levels: documents start at multiples of 4
jq -se 'all(.[].documents[]; .start % 4 == 0 and .offset == 0)' epoch.jsonl >/dev/null ||
  fail "not aligned"

# names and lengths are those of the corpus, in its order
plm-pipeline corpus corpus --fasta --split train >train.fasta
awk '/^>/ {if (n != "") print i++, n, length(s); n = substr($1, 2); s = ""; next} {s = s $0}
     END {print i, n, length(s)}' train.fasta | awk '{l = $3 + 2; if (l > 512) l = 512
     print $1 + 0, $2, l}' >expected
jq -r '.documents[] | "\(.index) \(.name) \(.length)"' epoch.jsonl | sort -n >got
cmp expected got || fail "names or lengths differ"

# a single step is the same when it comes from the run's own configuration; the file at hand may differ
mkdir run
plm-pipeline config >run/pipeline.yaml
sed -i 's/seed: 5/seed: 6/' pipeline.yaml
plm-pipeline trace --step 3 --json | cmp - <(sed -n '257,384p' all.jsonl) || fail "step 3 differs"
plm-pipeline trace --run run --step 3 --json | cmp - <(sed -n '257,384p' all.jsonl) || fail "--run"
[ "$(plm-pipeline trace --step 1 | grep -c '^epoch 0, chunk ')" -eq 128 ] || fail "the table"

expect 2 plm-pipeline trace
says err '--step N is needed'
expect 2 plm-pipeline trace --step 0
rm -r corpus
expect 1 plm-pipeline trace --step 1
says err "$PWD/corpus"
echo "trace of $documents documents over $steps steps"
