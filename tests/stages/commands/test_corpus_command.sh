#!/usr/bin/env bash
# plm-pipeline corpus: each number that it prints, for sequences that are counted here by other means; and a list of
# corpora in which one is named twice.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# Every letter, in different numbers, and lengths that are no multiple of a vector; long enough for its loops.
awk 'BEGIN {
  letters = "LAGVSERTIDPKQNFYMHWCXBUZO"
  for (i = 0; i < 300; i++) {
    sequence = ""
    for (j = 0; j < 61 + (i * 37) % 1000; j++) sequence = sequence substr(letters, 1 + int((i * j + j * j) % 311 / 13) , 1)
    printf ">s%d\n%s\n", i, sequence
  }
  printf ">long\n"
  for (j = 0; j < 40000; j++) printf "%s", substr(letters, 1 + (j * j) % 25, 1)
  printf "\n"
}' >all.fasta
expect 0 plm-pipeline ingest all.fasta --corpus all --split train=0.6,valid=0.2,test=0.2
expect 0 plm-pipeline corpus all
cp out summary
expect 0 plm-pipeline corpus all --json
cp out summary.json

# ---- composition: letters, the most frequent first, and its entropy ----
grep -v '>' all.fasta | tr -d '\n' | fold -w1 | sort | uniq -c >counts
total=$(awk '{ n += $1 } END { print n }' counts)
sort -k1,1nr -k2,2 counts | awk -v total="$total" '{ printf "%s %.4f\n", $2, 100 * $1 / total }' >expected
sed -n '/^composition/,$p' summary | awk '$3 == "%" { print $1, $2 }' >printed
[ "$(wc -l <printed)" -eq 25 ] || fail "not 25 letters: $(cat printed)"
diff <(sort expected) <(sort printed) || fail "the composition is another"
diff <(cut -d' ' -f2 expected) <(cut -d' ' -f2 printed) || fail "not the most frequent first"
entropy=$(awk -v total="$total" '{ p = $1 / total; h -= p * log(p) } END { printf "%.4f", h }' counts)
says summary "^composition \(entropy $entropy nats\)$"
jq -e --argjson h "$entropy" '(.entropy - $h) | fabs < 1e-4' summary.json >/dev/null || fail "entropy: $(jq .entropy summary.json)"

# ---- documents, residues and lengths ----
for split in train valid test; do
  plm-pipeline corpus all --fasta --split $split >$split.fasta
  documents=$(grep -c '>' $split.fasta)
  residues=$(grep -v '>' $split.fasta | tr -d '\n' | wc -c)
  jq -e --arg s $split --argjson d "$documents" --argjson r "$residues" \
    '.splits[$s].documents == $d and .splits[$s].residues == $r' summary.json >/dev/null ||
    fail "$split has $documents documents with $residues residues: $(jq -c ".splits[\"$split\"]" summary.json)"
done
[ "$(sort train.fasta valid.fasta test.fasta | cksum)" = "$(sort all.fasta | cksum)" ] || fail "the splits are not all"
awk '!/>/ { bin = 1; while (bin * 2 <= length($0)) bin *= 2; n[bin]++ }
  END { for (bin in n) printf "%d %d\n", bin, n[bin] }' all.fasta | sort -n >lengths
sed -n '/^lengths/,/^$/p' summary | awk '$2 == "-" { gsub(",", "") } $2 == "-" && $4 > 0 { print $1, $4 }' >printed
diff lengths printed || fail "the lengths are others"

# ---- the same corpus twice in a list ----
cp -r all again
small_config pipeline.yaml unet
sed -i 's|^corpus:.*|corpus: [{path: all, weight: 1}, {path: again, weight: 2}]|' pipeline.yaml
expect 2 plm-pipeline up pipeline.yaml
says err 'corpus: source 1 \(.*/again\) holds the same documents as source 0 \(.*/all\)'
[ ! -e run/trainer.jsonl ] || fail "a run was begun"
# the trainer by itself says so too
expect 2 plm-trainer -c pipeline.yaml
says err 'corpus: source 1 is the same corpus as source 0'
