#!/usr/bin/env bash
# What the end of `make demo-labels` shows: shares of the test chains only, without residues that have no label; the
# chain in the middle, whichever order it has in the table; and each wrong residue. Also: its settings are valid, for
# the language model and for fine-tuning, and the bundled table has what they need.
. "$PLM_ROOT/tests/support/shell/lib.sh"

cat >table.csv <<'CSV'
name,sequence,structure,split
best,ACDE,HHCC,test
training,ACDEFG,EEEEEE,train
worst,ACDE,HH?C,test
middle,ACDEF,EHCC?,test
CSV
gzip table.csv
printf 'name,prediction\nbest,HHCC\nworst,EECE\nmiddle,EHCHH\n' >predictions.csv
echo '{"accuracy": {"value": 0.625}, "baseline": {"accuracy": {"value": 0.5}}}' >probe.json
echo '{"accuracy": 0.75}' >evaluate.json
"$PLM_ROOT/tests/support/demo/demo_structure.sh" table.csv.gz . >shown
# Labels of the test: 5 H, 1 E, 5 C; H or C is the most frequent. 4, 0 and 3 of 4, 3 and 4 are right.
has() { grep -qE -- "$1" shown || fail "no line \"$1\" in: $(cat shown)"; }
has '^Correctly predicted residues, of 11 in the test chains:$'
has '^always [HC], the most frequent class +45\.5 %  (█){23}$'
has '^the amino acid alone: linear probe +50\.0 %  (█){25}$'
has '^language model, not fine-tuned: linear probe +62\.5 %  (█){32}$'
has '^fine-tuned model +75\.0 %  (█){38}$'
has ': middle, 75 % correct\.$'
has '^  sequence   ACDEF$'
has '^  structure  EH--\?$'
has '^  predicted  EH-HH$'
has '^                x$' # the residue without a label is not wrong

settings=$PLM_ROOT/tests/support/demo/structure.yaml table=$PLM_ROOT/tests/data/structure.csv.gz
plm-pipeline ingest -q "$table" --labels structure --split-column split --corpus data/structure.corpus 2>/dev/null
plm-pipeline corpus --json data/structure.corpus >corpus.json
jq -e '.labels[0] | .name == "structure" and .kind == "residues"' corpus.json >/dev/null || fail "$(jq -c .labels corpus.json)"
plm-pipeline validate "$settings" --set trainer.init_from=null -q || fail "the settings for fine-tuning are not valid"
plm-pipeline validate "$settings" -q --set trainer.objective=mlm --set trainer.labels=[] --set trainer.init_from=null ||
  fail "the settings for the language model are not valid"
