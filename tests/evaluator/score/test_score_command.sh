#!/usr/bin/env bash
# `plm-pipeline score` at the command line: what it prints, and every wrong input with its message.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 100
small_config pipeline.yaml patch_unet
plm-pipeline up pipeline.yaml -q --set trainer.steps=1 >up.log 2>&1 || fail "$(cat up.log)"
checkpoint=run/checkpoints/latest
printf '>thing a protein\nMKTAYIAKQR\nQISFVKSHFS\n' >wild.fasta
score() { plm-pipeline score --checkpoint "$checkpoint" --wild-type wild.fasta --threads 1 "$@"; }

# near VARIANT OTHER: the score of VARIANT in ./out is that of OTHER in by_words, except for rounding
near() {
  awk -F, -v a="$1" -v b="$2" '
    $1 == a && FILENAME == "out" { x = $2; found++ }
    $1 == b && FILENAME == "by_words" { y = $2; found++ }
    END { exit !(found == 2 && x - y < 1e-5 && y - x < 1e-5) }' out by_words ||
    fail "the score of $1 is not that of $2: $(cat out)"
}

# ---- what it prints ----
expect 0 score A4G 'a4g:k8e' K8E A4A
says err '4 variants of thing'
[ "$(head -n 1 out)" = mutant,score ] || fail "no header"
[ "$(wc -l <out)" = 5 ] || fail "there is not one line for each variant"
says out '^A4A,0\.000000$'
says out '^a4g:k8e,-?[0-9]+\.[0-9]{6}$'
cp out by_words
printf 'mutant\nA4G\na4g:k8e\nK8E\nA4A\n' >four.csv
expect 0 score --csv four.csv --output four.scored.csv -q
[ ! -s out ] && [ ! -s err ] || fail "-q with --output prints"
cmp four.scored.csv by_words || fail "the scores of a CSV differ from those of the command line"
cp four.csv same.csv # its columns stay, so it may be the output as well
expect 0 score --csv same.csv --output same.csv -q
cmp same.csv by_words || fail "a CSV that is its own output differs"
cp wild.fasta kept.fasta
expect 2 score A4G --output wild.fasta
says err '--output wild.fasta is also the input'
cmp wild.fasta kept.fasta || fail "the wild type was changed"
gzip -k four.csv
expect 0 score --csv four.csv.gz -q
cmp out by_words || fail "the scores of a compressed CSV differ"
expect 0 plm-pipeline score --checkpoint "$checkpoint" --wild-type mktayiakqrqisfvkshfs A4G
near A4G A4G
printf 'seq;id\nMKTAYIAKQRQISFVKSHFS;thing\n' >wild.csv
expect 0 plm-pipeline score --checkpoint "$checkpoint" --wild-type wild.csv --name-column id A4G
says err '1 variant of thing'
near A4G A4G
expect 0 score --offset 11 A14G
near A14G A4G
expect 0 score --offset -5 A-2G K2E:A-2G
near A-2G A4G
says out '^K2E:A-2G,'
expect 0 score --offset=-5 --all
says out '^M-5A,'
says out '^S14Y,'
expect 0 score --offset=-5 --all --plot
says out '^    -5 {8}5 +$'
expect 2 score --offset 1.5 A4G
says err 'option "--offset" needs a whole number, not "1.5"'
expect 0 score --all
[ "$(wc -l <out)" = $((1 + 19 * 20)) ] || fail "--all gave $(wc -l <out) lines"
near A4G A4G
near K8E K8E
expect 0 score --all --plot
says out '^    MKTAYIAKQRQISFVKSHFS$'
[ "$(wc -l <out)" = 24 ] || fail "the map has $(wc -l <out) lines"
if grep -q , <(tail -n +2 out); then fail "the map comes with CSV"; fi
expect 0 score --all --plot --color always --output scan.csv
grep -q $'\x1b\\[48;5;' out || fail "no colours with --color always"
[ "$(wc -l <scan.csv)" = $((1 + 19 * 20)) ] || fail "--plot --output wrote $(wc -l <scan.csv) lines"
expect 0 score --precision bf16 A4G
says err ' 1 variant of thing$'
expect 0 score --json A4G K8E
[ "$(jq -c '[.variants[].mutant], has("spearman")' out | tr '\n' ' ')" = '["A4G","K8E"] false ' ] ||
  fail "--json: $(cat out)"

# ---- every position ----
expect 0 score --per-position
[ "$(wc -l <out)" = 21 ] || fail "--per-position gave $(wc -l <out) lines"
says out '^position,wild_type,A,C,D,E,F,G,H,I,K,L,M,N,P,Q,R,S,T,V,W,Y$'
says out '^20,S(,-[0-9]+\.[0-9]{6}){20}$'
says err 'standard output: 20 positions of thing'
awk -F, 'NR == 5 { x = $8 - $3 } END { print "score\nA4G," x }' out >from_table
near_table=$(awk -F, '$1 == "A4G" { a = $2 } END { print a }' by_words)
awk -F, -v a="$near_table" '$1 == "A4G" { d = $2 - a } END { exit !(d < 1e-5 && d > -1e-5) }' from_table ||
  fail "A4G scores $near_table, but $(tail -n 1 from_table) from the table"
printf '>a <b> & c \377\nMKTAYIAKQRX%s\n' "$(printf 'LAGV%.0s' {1..20})" >odd.fasta
expect 0 plm-pipeline score --checkpoint "$checkpoint" --wild-type odd.fasta --offset 5 \
  --per-position --output map.svg
python3 - <<'END' || fail "map.svg is not the picture that it should be"
import xml.etree.ElementTree as tree
root = tree.parse("map.svg").getroot()
name = "{http://www.w3.org/2000/svg}"
texts = [text.text for text in root.iter(name + "text")]
assert texts[0].startswith("a"), texts[0]
assert "5" in texts and "65" in texts and "105" not in texts, texts  # two blocks
assert len(list(root.iter(name + "circle"))) == 90  # not for X
cells = [r for r in root.iter(name + "rect") if r.get("width") == r.get("height") == "12"]
assert len(cells) == 91 * 20 + 25, len(cells)
END
expect 2 score --per-position --output map.png
says err 'cannot write map.png: PNG is not supported'
says err 'name a .svg file for a picture'
expect 2 score --per-position A4G
says err '--per-position scores every position, so it takes no variants'
for other in --all --plot --json --measured=dms; do
  expect 2 score --per-position "$other"
  says err "--per-position cannot be combined with ${other%%=*}$"
done
# without masks, a variant's score is the difference of two numbers of the same table
expect 0 score --per-position --masking none
cp out unmasked
expect 0 score --masking none --json A4G K8E
jq -e --argjson d "$(awk -F, 'NR == 5 { print $8 - $3 }' unmasked)" \
  '.variants[0].score - $d | fabs < 1e-5' out >/dev/null || fail "A4G without masks: $(cat out)"
jq -e --argjson a "$near_table" '.variants[0].score - $a | fabs > 1e-6' out >/dev/null || fail "none is like additive"
expect 2 score --masking some A4G
says err '--masking must be additive, joint or none, not "some"'
says err 'masked-marginals is additive, and wt-marginals is none'
expect 2 score --per-position --masking joint
says err 'leave out --masking joint'

# tabs because of the name; a column with another name; a column that already exists
printf 'what\tscore\nA4G\t1.5\nK8E\t2\n' >variants.tsv
expect 2 score --csv variants.tsv --mutations what
says err 'variants.tsv already has a column "score"'
says err '--score-column NAME'
expect 0 score --csv variants.tsv --mutations what --measured score --score-column model
[ "$(head -n 1 out)" = $'what\tscore\tmodel' ] || fail "the header: $(head -n 1 out)"
says err "Spearman's correlation with score \(n = 2\): -?1.0000$" # there is no interval for two

# semicolons and tabs as in the header, also from a pipe; a number needs a decimal point
printf 'mutant;dms\nA4G;1.5\nK8E;2\n' >semicolons.csv
expect 0 score --csv semicolons.csv --measured dms
grep -q '^A4G;1.5;-\?[0-9.]*$' out || fail "semicolons: $(cat out)"
says err 'correlation with dms \(n = 2\)'
tr ';' '\t' <semicolons.csv >tabs.txt
score --csv - <tabs.txt >out 2>err || fail "tabs from a pipe: $(cat err)"
[ "$(head -n 1 out)" = $'mutant\tdms\tscore' ] || fail "the header: $(head -n 1 out)"
printf 'mutant;dms\nA4G;1,5\n' >comma.csv
expect 1 score --csv comma.csv --measured dms
says err 'the measured value "1,5" is not a number'
says err 'write the number with a decimal point'

# ---- measurements that are all equal ----
printf 'mutant,dms\nA4G,1\nK8E,1\nK8L,\nK8V,NA\n' >flat.csv
expect 0 score --csv flat.csv --measured dms --json
[ "$(jq -c .spearman out)" = '{"value":null,"low":null,"high":null,"count":2}' ] || fail "$(cat out)"
says err '4 variants of thing; no correlation with dms, which has 2 numbers: too few, or all equal'

# ---- wrong variants: all are reported, and nothing is written ----
cat >wrong.csv <<'END'
id,mutant,dms
1,A4G,0.5
2,G4A,0.5
3,"A4G:
K9E",0.5
4,K8E
5,A4del,1
6,K8E,high
7,W99A,1
END
expect 1 score --csv wrong.csv --measured dms --output wrong.out.csv
says err 'error: wrong.csv:3: column mutant: G4A: expected G at position 4, found A$'
says err 'error: wrong.csv:4: column mutant: K9E: expected K at position 9, found Q$'
says err 'error: wrong.csv:6: the row has 2 fields, but the header has 3$'
says err 'error: wrong.csv:7: column mutant: "A4del": insertions, deletions and stops are not supported$'
says err 'error: wrong.csv:8: column dms: the measured value "high" is not a number$'
says err 'error: wrong.csv:9: column mutant: W99A: the wild type has positions 1 to 20, and none numbered 99$'
says err '6 of 7 variants cannot be scored, so none was scored'
[ "$(ls wrong.out.csv* 2>/dev/null)" = "" ] || fail "an output file was created"
{ echo mutant; printf "W1A\n%.0s" {1..50}; } >many.csv
expect 1 score --csv many.csv
[ "$(grep -c 'error: many.csv' err)" = 20 ] || fail "twenty errors should be printed"
says err '50 of 50 variants cannot be scored'

# an error is printed once, both for a single variant and, with the count, for one of several
expect 1 score C4G
[ "$(grep -c 'C4G: expected C at position 4, found A' err)" = 1 ] || fail "the error is not printed exactly once: $(cat err)"
expect 1 score A4G C4G
[ "$(grep -c 'error: C4G: expected C at position 4, found A' err)" = 1 ] || fail "$(cat err)"
says err '1 of 2 variants cannot be scored'

# a numbering that fits all variants is found
expect 1 score A14G K18E R20C
says err 'all variants fit with --offset 11'
expect 1 score A-2G K2E
says err 'all variants fit with --offset -5'

# ---- wrong command lines ----
for offset in 1000000000 -1000000000; do
  expect 0 score --offset $offset --all -q
done
for offset in 1000000001 -1000000001; do
  expect 2 score --offset $offset --all
  says err "--offset $offset is not within -1000000000 to 1000000000"
done
expect 2 plm-pipeline score --checkpoint "$checkpoint" --wild-type - --csv -
says err '--wild-type and --csv cannot both be standard input'
expect 2 score --all --plot --json
says err '--plot needs --all, and cannot be combined with --json'
expect 2 score --all --plot --output -
says err '--plot.* would both write to standard output'
expect 2 score A4G --mutations m
says err '--mutations names a column of a CSV file'
expect 2 score --csv four.csv --all
says err 'give the variants in one of three ways'
expect 2 score --csv four.csv A4G
says err 'give the variants in one of three ways'
for other in --csv=four.csv --mutations=m --score-column=x; do
  expect 2 score --per-position "$other"
  says err "--per-position cannot be combined with ${other%%=*}$"
done
expect 2 score
says err 'give the variants in one of three ways: MUTATION..., --csv FILE or --all'
says err '--per-position'
expect 2 score --all A4G
says err 'give the variants in one of three ways'
expect 2 score A4G --measured dms
says err 'measured names a column of a CSV file, so it needs --csv FILE'
expect 2 score A4G --plot
says err '--plot needs --all'
expect 2 score --all --plot --color blue
says err 'option "--color" must be auto, always or never'
expect 2 score A4G --masking other
says err '"other"'
expect 2 plm-pipeline score --wild-type wild.fasta A4G
says err '--checkpoint DIR is needed'
expect 2 plm-pipeline score --checkpoint "$checkpoint" A4G
says err '--wild-type FILE is needed'
expect 2 score --csv four.csv --mutations hgvs
says err 'four.csv:1: there is no column "hgvs"'
says err 'name one with --mutations: mutant'
expect 1 plm-pipeline score --checkpoint "$checkpoint" --wild-type no/such.fasta A4G
says err 'no/such.fasta: no such file, and not a sequence'
printf '>a\nMKT\n>b\nMKV\n' >two.fasta
expect 1 plm-pipeline score --checkpoint "$checkpoint" --wild-type two.fasta M1A
says err 'two.fasta has more than one sequence'
printf '>a\n' >none.fasta
expect 1 plm-pipeline score --checkpoint "$checkpoint" --wild-type none.fasta M1A
says err 'none.fasta'
expect 1 plm-pipeline score --checkpoint nowhere --wild-type wild.fasta A4G
says err 'nowhere'
: >empty.csv
expect 1 score --csv empty.csv
says err 'empty.csv is empty'
echo mutant >rowless.csv
expect 1 score --csv rowless.csv
says err 'there are no variants to score'
printf 'mutant\n"A4G\n' >open.csv
expect 1 score --csv open.csv
says err 'open.csv:2: the file ends inside a quoted field'
expect 1 score A4G --output no/such/folder.csv
says err 'no/such/folder.csv'
