#!/usr/bin/env bash
# `plm-pipeline probe` at the command line: what it prints, writes and refuses. tests/golden/test_probe.py compares
# its numbers with scikit-learn.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 60
small_config pipeline.yaml transformer
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=1 --set trainer.schedule.warmup_steps=0 \
  --set trainer.schedule.cooldown_steps=0
checkpoint=run/checkpoints/latest
probe() { plm-pipeline probe --checkpoint "$checkpoint" --threads 1 "$@"; }

# y is the share of L, A, G and V, so the composition predicts it exactly; kind is a function of y.
small_fasta s.fasta 120 3
awk 'BEGIN {print "sequence,y,kind,set,validation"}
  /^>/ {next}
  {n++; x = $0; share = gsub(/[LAGV]/, "", x) / length($0)
   printf "%s,%.6f,%s,%s,%s\n", $0, share, share < 0.52 ? "little" : "much", n % 4 == 0 ? "test" : "train",
     n % 4 == 1 ? "True" : ""}' s.fasta >t.csv

# The help calls the row of the baseline by its name.
plm-pipeline probe --help | tr -s ' \n' ' ' >help.txt
baseline_in_help() {
  local name
  name=$(grep -o '^([^)]*)' out) || fail "no row of a baseline: $(cat out)"
  grep -qF "$name" help.txt || fail "the help says nothing about $name: $(cat help.txt)"
}

expect 0 probe t.csv --target y --split set
baseline_in_help
says out '^table   t.csv: 120 rows, regression of "y"$'
says out '^split   train 60, valid 30, test 30$'
says out "^$checkpoint +last +[0-9.]+ +-?[0-9.]+ \[-?[0-9.]+, -?[0-9.]+\] "
says out '^\(composition and length only\) +- +0.01 +1.000 \[1.000, 1.000\] +1.000 \[1.000, 1.000\] +1.000 '

expect 0 probe t.csv --target kind --split set --json -q --output p.csv
[ ! -s err ] || fail "-q prints: $(cat err)"
jq -e '.task == "classification" and .classes == ["little", "much"] and [.train, .valid, .test] == [60, 30, 30]
       and .layer == "last" and .accuracy.count == 30 and .accuracy.low <= .accuracy.value
       and .baseline.auroc.value > 0.95 and .missing_labels == 0' out >/dev/null || fail "wrong: $(cat out)"
[ "$(head -1 p.csv)" = 'line,kind,predicted,p(little),p(much)' ] || fail "header $(head -1 p.csv)"
[ "$(wc -l <p.csv)" = 31 ] || fail "not 30 predictions"
accuracy=$(awk -F, 'NR > 1 {right += $2 == $3} END {printf "%.6f", right / (NR - 1)}' p.csv)
jq -e --argjson a "$accuracy" '(.accuracy.value - $a) | fabs < 1e-5' out >/dev/null || fail "accuracy $accuracy"
mv out one.json
expect 0 plm-pipeline probe --checkpoint "$checkpoint" t.csv --target kind --split set --json -q --threads 2
cmp out one.json || fail "the number of threads changes the result"

# The baseline knows the length, but not of which sequence a residue is.
awk -F, 'NR == 1 {print "sequence,long,set"} NR > 1 {print $1 "," log(length($1)) "," $4}' t.csv >l.csv
expect 0 probe l.csv --target long --split set --json -q
jq -e '.baseline.pearson.value > 0.9999' out >/dev/null || fail "length: $(cat out)"
awk -F, 'NR == 1 {print "sequence,each,set"}
  NR > 1 {x = $1; gsub(/[LAGV]/, "h", x); gsub(/[^h]/, "c", x); print $1 "," x "," $4}' t.csv >r.csv
expect 0 probe r.csv --target each --split set
says out '^\(composition only\) +- +[0-9.]+ +1.000 '
baseline_in_help

# Without a validation part, the alpha that is given is used: with a very large one, every prediction is the mean.
cut -d, -f1-4 t.csv >u.csv
expect 0 probe u.csv --target y --split set --alpha 1e12 --output mean.csv
awk -F, 'NR == FNR {if (FNR > 1 && $4 == "train") {sum += $2; n++}; next}
  FNR > 1 && ($3 - sum / n > 1e-4 || $3 - sum / n < -1e-4) {wrong++} END {exit wrong > 0 || FNR != 31}' u.csv mean.csv ||
  fail "not the mean: $(head -3 mean.csv)"

# Every format gives the same numbers.
jq -Rsc '[split("\n")[1:][] | select(. != "") | split(",")] | .[] |
  {sequence: .[0], kind: .[2], set: .[3], validation: (.[4] == "True")}' t.csv >t.jsonl
tr , '\t' <t.csv | gzip >t.tsv.gz
for table in t.jsonl t.tsv.gz; do
  expect 0 probe $table --target kind --split set --json -q
  [ "$(jq -c 'del(.table)' out)" = "$(jq -c 'del(.table)' one.json)" ] || fail "$table: $(cat out)"
done

# A line for each checkpoint, and a bar for each layer, one of which is marked.
expect 0 probe --checkpoint run/checkpoints/step_00000000 t.csv --target y --layers all
[ "$(grep -c '^run/checkpoints/' out)" = 2 ] || fail "not two rows: $(cat out)"
[ "$(grep -cE '^[* ] +[0-2] +-?[0-9.]+ +#*$' out)" = 6 ] || fail "not three layers each: $(cat out)"
[ "$(grep -c '^\*' out)" = 2 ] || fail "not one best layer each: $(cat out)"
says out 'by the hash of the sequence'

# Warnings: a sequence in two parts, a class that only the test part has, a long sequence.
{ cat t.csv; sed -n 2p t.csv | sed 's/,train,.*/,test,/; s/,[a-z]*,test/,new,test/'; } >w.csv
expect 0 probe w.csv --target kind --split set
says err 'w.csv:122: rows of the test part with a sequence that another part has too: 1;'
says err 'w.csv:122: the class "new" is not in the training data'
# Without a test part, the validation part is tested.
{ sed 's/,test,/,valid,/' t.csv; sed -n '3s/,train,/,valid,/p' t.csv; } >v.csv
expect 0 probe v.csv --target kind --split set
says err 'v.csv:122: rows of the validation part with a sequence that another part has too: 1;'

# Contacts: some pairs of each protein, three of which are learnt from.
mkdir proteins
awk '/^>/ {next} length($0) >= 40 && ++n <= 6 {print ">p" n "\n" $0 >("proteins/p" n ".fasta")}' s.fasta
for fasta in proteins/*.fasta; do
  length=$(sed -n 2p "$fasta" | tr -d '\n' | wc -c)
  for ((i = 1; i + 7 <= length; i += 3)); do
    echo "$i $((i + 7))"
    [ $((i + 26)) -gt "$length" ] || echo "$i $((i + 26))"
  done >"${fasta%.fasta}.contacts"
done
expect 0 probe --task contacts proteins --train 3
! grep -q 'without contacts' err || fail "a warning of nothing: $(cat err)"
says out '^folder  proteins: 3 proteins to learn from, 3 to test$'
says out "^$checkpoint +[0-9]+ of [0-9]+ +[01]\.[0-9]{3} +[01]\.[0-9]{3} +[01]\.[0-9]{3} +0\.[0-9]{3}$"
expect 0 probe --checkpoint run/checkpoints/step_00000000 --task contacts proteins --train 3 --json -q
jq -e '.task == "contacts" and (.checkpoints | length) == 2 and all(.checkpoints[]; .tested == 3 and .trained == 3
  and .heads_used <= .heads and .precision_l >= 0 and .precision_l5 <= 1 and .chance > 0)' out >/dev/null ||
  fail "wrong: $(cat out)"
expect 0 probe --task contacts proteins --train 3 --json -q --max-length 40
says err 'warning: proteins of which run/checkpoints/latest sees only the beginning: 6'

# What it refuses.
fails() { # EXIT REGEX ARGUMENTS…
  local code=$1 regex=$2
  shift 2
  expect "$code" probe "$@"
  says err "$regex"
  [ ! -s out ] || fail "$* printed, although it failed: $(cat out)"
}
fails 2 '--target COLUMN is needed' t.csv
fails 2 'no table is named' --target y
fails 2 '--task must be' t.csv --target y --task ranking
fails 2 '--output writes the predictions of one model' --checkpoint x t.csv --target y --output p2.csv
cp t.csv kept.csv
fails 2 '--output t.csv is also the input' t.csv --target y --output t.csv
fails 2 '--output ./t.csv is the same file as the input t.csv' t.csv --target y --output ./t.csv
cmp t.csv kept.csv || fail "the table was changed"
fails 2 'would both write to standard output' t.csv --target y --output - --json
fails 2 '--alpha 0 is not a number' t.csv --target y --alpha 0
fails 2 'the model has no layer 9' t.csv --target y --layers 9
fails 1 't.csv:2, column 3 \(kind\)' t.csv --target kind --task regression
fails 1 'are "little"' <(grep -v much t.csv) --target kind --split set
fails 1 'too small to be split by chance' <(head -2 t.csv) --target y
fails 2 '--target does not apply to --task contacts' proteins --task contacts --target y
fails 2 'no folder is named' --task contacts
fails 2 '--train is for --task contacts' t.csv --target y --train 3
fails 2 'proteins is a folder, not a table' proteins
says err 'for a folder of proteins with contacts, give --task contacts'
fails 2 '--task must be' proteins --task contact
fails 1 '6 proteins are too few: 20 for training \(--train\) and at least one for the test' proteins --task contacts
fails 1 't.csv is not a folder' t.csv --task contacts

# A protein without contacts of its own: another one does not take its place, and an empty list counts.
mv proteins/p4.contacts proteins/p4.contacts.gz
fails 1 'proteins/p4.fasta has no contacts beside it' proteins --task contacts --train 3
says err 'write them into proteins/p4.contacts \(an empty file if there are none\)'
echo '1 9' >proteins/p4.contacts
: >proteins/p6.contacts
expect 0 probe --task contacts proteins --train 3 --json -q
says err 'proteins of the test without contacts at least 24 apart, which count with a precision of 0: 2; the first is p4'
jq -e '.tested == 3' out >/dev/null || fail "not counted: $(cat out)"
[ ! -e p2.csv ] || fail "an error left a file"
