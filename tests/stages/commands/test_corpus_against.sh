#!/usr/bin/env bash
# `corpus --against`: what it prints for two corpora, for two splits of one, and for a set of the configuration.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_fasta all.fasta 300
# the held-out corpus: two exact duplicates, a near-duplicate (its second half is kept, and its first residue
# changed), and three other sequences
awk 'NR <= 4' all.fasta >held.fasta
awk 'NR == 6 { print ">near\n" ($0 ~ /^L/ ? "A" : "L") substr($0, 2) }' all.fasta >>held.fasta
small_fasta other.fasta 3 99
cat other.fasta >>held.fasta
plm-pipeline ingest all.fasta --corpus all.corpus --split train=1 -q 2>/dev/null
plm-pipeline ingest held.fasta --corpus held.corpus --split valid=1 -q 2>/dev/null
against() { plm-pipeline corpus all.corpus --against "$@"; }

expect 0 against held.corpus --json
is_counted='.training == {"corpus": "all.corpus", "split": "train", "documents": 300, "exact": 2, "near": 1}
  and .held_out == {"corpus": "held.corpus", "split": "valid", "documents": 6, "exact": 2, "near": 1}'
jq -e "$is_counted" out >/dev/null || fail "the counts: $(cat out)"
jq -e '.identity == 0.9 and (.most_similar | length) == 3 and .most_similar[0].exact and
  .most_similar[2].held_out == "near" and .most_similar[2].training == "seq2"' out >/dev/null || fail "$(cat out)"
expect 0 against held.corpus
says out '^held out: 6 documents of held.corpus in split valid$'
says out '^  exact duplicates +2   33.33 %$'
says out '^  near-duplicates +1   16.67 %$'
says out '^  near  is like  seq2  \(identity about (0\.9[0-9]|1\.00)\)$'
expect 0 against held.corpus --identity 1
says out '^  near-duplicates +0    0.00 %$'

# a set of the configuration, with its split
small_config pipeline.yaml transformer
sed -i '/^evaluator:/a\  sets: [{name: curated, corpus: held.corpus, split: valid}]' pipeline.yaml
expect 0 against curated --json
jq -e '.held_out.documents == 6 and .held_out.exact == 2' out >/dev/null || fail "the set: $(cat out)"
expect 1 against nothing
says err 'no such folder, and evaluator.sets has no set of this name'

# two splits of one corpus; the same one by another path
small_corpus mixed 200
expect 0 plm-pipeline corpus mixed --against ./mixed --against-split test --json
jq -e '.held_out.split == "test" and .held_out.exact == 0' out >/dev/null || fail "$(cat out)"
expect 2 plm-pipeline corpus mixed --against ./mixed --split test --against-split test
says err 'a split is not compared with itself'

expect 2 against held.corpus --against-split test
says err 'split test of held.corpus is empty'
expect 2 against held.corpus --identity 1.5
says err '--identity must be from 0.5 to 1, not "1.5"'
expect 2 plm-pipeline corpus all.corpus --identity 0.8
says err '--identity needs --against DIR'
plm-pipeline ingest all.fasta --corpus bytes.corpus --tokenizer byte --split valid=1 -q 2>/dev/null
expect 2 against bytes.corpus
says err 'the two corpora have different tokenizers'
