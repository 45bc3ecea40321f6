#!/usr/bin/env bash
# `plm-pipeline score --assays` at the command line: the scores are those of single tables, what is there already is
# not scored again, the report is that of the scores, and every wrong use is refused. That statistics are right:
# test_assay_statistics.c and tests/golden/test_assays.py.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 100
small_config pipeline.yaml unet
plm-pipeline up pipeline.yaml -q --set trainer.steps=1 >up.log 2>&1 || fail "$(cat up.log)"
checkpoint=run/checkpoints/latest target=MKTAYIAKQRQISFVKSHFS
mkdir assays
printf 'mutant,DMS_score,DMS_score_bin\nM1A,1,1\nK2E:T3S,0.5,0\nA4G,,1\nY5W,2,1\n' >assays/one.csv
printf 'mutated_sequence,DMS_score\nMKTAYIAKQRQISFVKSHF,1\nMKKTAYIAKQRQISFVKSHFS,2\n%s,3\n' $target >assays/two.csv
cat >list.csv <<END
DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,DMS_binarization_cutoff
ONE,one.csv,P1,$target,Activity,
TWO,two.csv,P2,${target,,},Binding,2
END
assays() { plm-pipeline score --checkpoint $checkpoint --threads 1 --assays assays --reference list.csv "$@"; }

# ---- scores, which are those of single commands ----
expect 0 assays --scores scores --output report.csv --json
cp out object.json
says err 'assay 1 of 2: ONE \(substitutions\)$'
says err 'assay 2 of 2: TWO \(indels\)$'
says err 'average of 2 assays: Spearman '
! grep -q 'scored already' err || fail "nothing has been scored before: $(cat err)"
expect 0 plm-pipeline score --checkpoint $checkpoint --threads 1 --wild-type $target --csv assays/one.csv \
  --measured DMS_score --score-column plm_score --output single.csv
cmp single.csv scores/ONE.csv || fail "the scores of ONE differ from those of a table: $(cat scores/ONE.csv)"
[ "$(head -n 1 scores/TWO.csv)" = mutated_sequence,DMS_score,plm_score ] || fail "TWO: $(cat scores/TWO.csv)"
[ "$(tail -n 1 scores/TWO.csv)" = $target,3,0.000000 ] || fail "the target itself: $(cat scores/TWO.csv)"
[ "$(grep -cE ',-?[0-9]+\.[0-9]{6}$' scores/TWO.csv)" = 3 ] || fail "TWO: $(cat scores/TWO.csv)"
[ "$(cut -d, -f1-4 report.csv | paste -sd' ')" = \
  'DMS_id,UniProt_ID,coarse_selection_type,number_mutants ONE,P1,Activity,3 TWO,P2,Binding,3' ] ||
  fail "the report: $(cat report.csv)"
jq -e '(.assays | map([.DMS_id, .number_mutants]) == [["ONE", 3], ["TWO", 3]]) and
       (.selection_types | map(.coarse_selection_type) == ["Activity", "Binding"])' object.json >/dev/null ||
  fail "the object: $(cat object.json)"
jq -e '.masking == "additive" and .precision == "fp32" and (.weights | test("^[0-9a-f]{32}$"))' scores/scores.json \
  >/dev/null || fail "the origin: $(cat scores/scores.json)"

# ---- what is there is read: scores that agree with the measurements ----
printf 'mutant,DMS_score,DMS_score_bin,plm_score\nM1A,1,1,0.5\nK2E:T3S,0.5,0,0.25\nA4G,,1,9\nY5W,2,1,0.75\n' >scores/ONE.csv
rm scores/TWO.csv
touch scores/TWO.csv.tmp-123
expect 0 assays --scores scores
says err '1 of 2 assays have been scored already, in scores$'
says err 'removing ./scores/TWO.csv.tmp-123, which an interrupted command left'
! grep -q 'assay 1 of 2' err || fail "ONE was scored again: $(cat err)"
says err 'assay 2 of 2: TWO'
says err 'Activity: Spearman 1.000, AUC 1.000, MCC 1.000, NDCG 0.000, Top_recall 1.000$'
[ "$(sed -n 2p out)" = ONE,P1,Activity,3,1.000000,1.000000,1.000000,0.000000,1.000000 ] || fail "ONE: $(cat out)"
[ "$(sed -n 3p out)" = "$(sed -n 3p report.csv)" ] || fail "TWO: $(cat out report.csv)"

# ---- a part of the benchmark ----
expect 0 assays --scores part --ids TWO
[ "$(paste -sd' ' out)" = "$(sed -n '1p;3p' report.csv | paste -sd' ')" ] || fail "only TWO: $(cat out)"
[ ! -e part/ONE.csv ] || fail "ONE was scored"
expect 0 assays --scores two --max-variants 2
[ "$(sed 1d two/TWO.csv | wc -l) $(cut -d, -f1,4 out | sed -n 3p)" = '2 TWO,2' ] || fail "two of each: $(cat out two/*)"
[ "$(wc -l <two/ONE.csv)" = 3 ] && [ "$(cut -d, -f1-3 two/ONE.csv | grep -cxFf - assays/one.csv)" = 3 ] ||
  fail "the rows of the sample: $(cat two/ONE.csv)"
cp out whole
expect 0 assays --scores two --max-variants 2
cmp out whole || fail "the scores that are there give another report: $(cat out)"
says err '2 of 2 assays have been scored already'

# ---- what is refused ----
for most in --max-variants=3 --masking=additive; do
  expect 1 assays --scores two $most
  says err 'two has scores made with other max_variants'
done
expect 1 assays --scores two --max-variants 2 --precision int8
says err 'two has scores made with other precision'
expect 2 assays --scores new --max-variants 0
says err '--max-variants must be at least 1'
expect 2 assays --scores new --ids ,
says err '--ids names no assay'
expect 2 assays --scores new --ids ONE,TWo
says err 'list.csv lists no assay "TWo"'
says err 'did you mean "TWO"'
expect 1 assays --scores scores --masking joint
says err 'scores has scores made with other masking'
expect 0 assays --scores joint --masking joint
sed -i 's/^M1A,1/M1A,2/' scores/ONE.csv
expect 1 assays --scores scores
says err 'ONE.csv was not made from assays/one.csv: line 2 differs'
for other in --wild-type=wild.fasta --csv=four.csv --all --mutations=m --measured=x --plot --per-position --offset=3 \
  --score-column=x; do
  expect 2 assays --scores new "$other"
  says err "--assays cannot be combined with ${other%%=*}$"
done
expect 2 assays --scores new A4G
says err '--assays brings its own variants: leave out A4G, or --assays'
expect 2 assays
says err '--scores DIR is needed'
expect 2 plm-pipeline score --checkpoint $checkpoint --assays assays --scores new
says err '--reference FILE is needed'
expect 2 assays --scores new --masking other
says err '--masking must be additive, joint or none, not "other"'
expect 2 assays --scores new --json --output -
says err 'would both write to standard output'
for only in --reference=list.csv --scores=new --ids=ONE --max-variants=3; do
  expect 2 plm-pipeline score --checkpoint $checkpoint --wild-type $target A4G $only
  says err "${only%%=*} belongs to --assays DIR"
done
printf 'mutant,DMS_score,DMS_score_bin\nM2A,1,1\nK3E,0.5,0\n' >assays/one.csv
expect 1 assays --scores new
says err 'K3E: expected K at position 3, found T'
says err '2 of 2 variants cannot be scored'
! grep -q 'all variants fit' err || fail "an offset is suggested for an assay: $(cat err)"
for wrong in ',there is no sequence' 'MK-T,letter 3 of the sequence is not a residue'; do
  printf 'mutated_sequence,DMS_score\n%s\n%s,2\n' MKT,1 "${wrong%%,*}" >assays/two.csv
  sed -i '/^ONE/d' list.csv
  expect 1 assays --scores wrong
  says err "assays/two.csv:3: column mutated_sequence: ${wrong#*,}"
done
[ ! -e new/ONE.csv ] && [ ! -e wrong/TWO.csv ] || fail "scores of wrong tables"
