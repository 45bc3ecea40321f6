#!/usr/bin/env bash
# Runs that train labels end with the same bits with one packer or three, of which one is killed with a rank, and on a
# mixture on one rank and on four; with dropout in the head, class weights and missing labels. That each objective has the
# same bits on several ranks is what tests/trainer/ranks/test_label_ranks.sh compares.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus plain 400
plm-pipeline corpus plain --fasta --split train >train.fasta

# a corpus with labels of every kind, from every second sequence, beginning with this one
labelled() {
  awk -v first="$1" '
    BEGIN { print "name,sequence,tm,ph,family,terms,ss,set" }
    /^>/ { name = substr($1, 2); n++; next }
    n % 2 != first { next }
    {
      ss = $0
      gsub(/[A-F]/, "H", ss); gsub(/[G-L]/, "E", ss); gsub(/[M-R]/, "?", ss); gsub(/[S-Z]/, "C", ss)
      terms = n % 3 == 1 ? "a" : n % 3 == 2 ? "a;b" : n % 4 ? "c" : "[]"
      printf "%s,%s,%s,%s,%s,%s,%s,%s\n", name, $0, n % 7 ? n / 4 : "", n % 5 ? -n : "", n % 11 ? n % 6 < 4 ? "x" : "y" : "",
        n % 13 ? terms : "", ss, n % 20 < 2 ? "valid" : "train"
    }' train.fasta >"$2.csv"
  plm-pipeline ingest "$2.csv" --corpus "$2" --labels tm,ph,family:class,terms:classes,ss:residues --split-column set \
    >/dev/null 2>&1 || fail "ingest of $2.csv"
}
labelled 0 corpus
labelled 1 more

trainer_config transformer
sed -i '/^evaluator:/d' pipeline.yaml
common=("${rank_settings[@]}" --set trainer.steps=6 --set trainer.checkpoint.every=3 --set trainer.head.dropout=0.2)

# three packers, of which one is killed with rank 1 of two; then a trainer alone, which is killed; then four ranks
settings=("${common[@]}" --set trainer.objective=residues --set 'trainer.labels=[ss]' --set data.truncate=split
  --set trainer.class_weights=balanced)
run_undisturbed_ranks 1 alone "${settings[@]}"
jq -se 'length == 6 and all(.[]; .loss > 0 and .grad_norm > 0)' alone/trainer.jsonl >/dev/null ||
  fail "it learns nothing: $(jq -c '[.step, .loss, .grad_norm]' alone/trainer.jsonl)"
packers=()
for _ in 1 2 3; do
  start_packer moved
  packers+=("$packer_pid")
done
start_ranks_for 2 moved 4 "${settings[@]}"
mapfile -t ranks < <(ranks_of "$trainer_pid")
kill -9 "${ranks[1]}" "${packers[0]}"
kill -CONT "${ranks[0]}" 2>/dev/null
wait "$trainer_pid" "${packers[0]}" 2>/dev/null
no_rank_left "${ranks[@]}"
start_ranks_for 1 moved 5 "${settings[@]}"
kill_trainer
run_ranks 4 moved "${settings[@]}" || fail "the resume ended with $?"
kill "${packers[@]:1}"
wait "${packers[@]:1}" 2>/dev/null
same_run alone moved 6

# a mixture: both corpora have the columns
sed -i 's/^corpus: .*/corpus: [{path: corpus, weight: 3}, {path: more}]/' pipeline.yaml
start_packer() { # the run's own corpora
  "$PLM_BIN/plm-packer" -c pipeline.yaml --run "$1" >>packer.log 2>&1 &
  packer_pid=$!
}
settings=("${common[@]}" --set trainer.objective=classification --set 'trainer.labels=[family]' --set data.truncate=head
  --set model.architecture=esm2 --set trainer.class_weights=balanced)
for ranks in 1 4; do run_undisturbed_ranks $ranks mixture-$ranks "${settings[@]}"; done
same_run mixture-1 mixture-4 6
jq -se 'all(.[]; .tokens_by_source.corpus > 0 and .tokens_by_source.more > 0) and any(.[]; .loss_by_source.more > 0)' \
  mixture-1/trainer.jsonl >/dev/null || fail "sources: $(jq -c '[.tokens_by_source, .loss_by_source]' mixture-1/trainer.jsonl)"
