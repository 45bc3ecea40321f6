#!/usr/bin/env bash
# Tables as people have them: what an objective cannot use is refused by `validate`, `up` and the trainer with the column and
# the corpus, before a step; missing labels, classes without training labels, constant numbers and odd names train.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
cat >table.py <<'PY'
import csv, random, sys
draw = random.Random(2)
writer = csv.writer(sys.stdout)
writer.writerow("name sequence set number constant rare family only late letters".split())
for i in range(60):
    sequence = "".join(draw.choices("LAGVSERTIDPKQNFYMHWC", k=draw.randint(10, 40)))
    split = "valid" if i % 10 == 3 else "test" if i % 10 == 7 else "train"
    base = sum(x in "KR" for x in sequence) > len(sequence) / 10
    family = "only, \"there\"" if split == "valid" else "α-Helix; β" if base else "None of them"
    writer.writerow([
        f"p{i}", sequence, split, f"{draw.gauss(5, 2):.3f}", "3.5", "1.5" if i == 1 else "2.5" if i == 2 else "",
        family, "one", "1.0" if split != "train" else "", "".join("H" if x in "AEL" else "C" for x in sequence),
    ])
PY
python3 table.py >table.csv
plm-pipeline ingest table.csv --split-column set --corpus corpus -q \
  --labels number,constant:number,rare,family:class,only:class,late,letters:residues 2>ingest.log ||
  fail "ingest ended with $?: $(cat ingest.log)"
small_corpus plain 60
trainer_config transformer
sed -i 's/  steps: 60/  steps: 4/; s/batch_tokens: 512/batch_tokens: 256/; s/micro_batch_tokens: 256/micro_batch_tokens: 64/
  s/max_length: 128/max_length: 64/; s/cooldown_steps: 20/cooldown_steps: 2/; s/warmup_steps: 5/warmup_steps: 1/' pipeline.yaml

# refused MESSAGE SET...: validate and up say so and exit with 2
refused() {
  local message=$1 command
  shift
  for command in validate "up --dry-run" up; do
    # shellcheck disable=SC2086 # words
    plm-pipeline $command pipeline.yaml "$@" >out.log 2>said.log
    [ $? -eq 2 ] || fail "$command with $* did not end with 2: $(cat said.log)"
    grep -qF "$message" said.log || fail "$command with $* does not say \"$message\" but $(cat said.log)"
  done
  [ ! -e run ] || fail "a run was made"
}
set_of() { echo --set "trainer.objective=$1" --set "trainer.labels=$2"; }
# shellcheck disable=SC2046 # words
{
  refused "corpus corpus has no column of labels called charge" $(set_of regression charge)
  refused "its columns are number, constant, rare, family, only, late, letters" $(set_of regression charge)
  refused "corpus plain has no labels" $(set_of regression number) --set corpus=plain
  refused "objective regression needs columns of numbers, and family of 1 is of kind class" $(set_of regression family)
  refused "objective residues needs one column of kind residues" $(set_of residues family)
  refused "column only has one class only, so nothing can be learnt" $(set_of classification only)
  refused "no document of the training split has a label late" $(set_of regression late)
}

# A trainer that learns only from a packer which corpus it trains on refuses it as well.
"$PLM_BIN/plm-packer" -c pipeline.yaml --corpus plain --run other >>packer.log 2>&1 &
packer_pid=$!
run_trainer other --set corpus=null --set trainer.objective=regression --set trainer.labels=number
[ $? -eq 2 ] || fail "the trainer did not end with 2"
grep -q "trainer.labels: corpus of the run has no labels" trainer.log || fail "the trainer does not say that there are no labels"
stop_packer

# trains OBJECTIVE LABELS [ARG...]: in the folder $run, whose last config.json is $config
trains() {
  run=$PLM_TMP/$1-${2//[^a-z]/-} config=$run/checkpoints/latest/config.json
  local -a set=(--set "trainer.objective=$1" --set "trainer.labels=$2" "${@:3}")
  run_undisturbed "$run" "${set[@]}"
  [ "$(lines_of "$run/trainer.jsonl")" -eq 4 ] || fail "$1 of $2: not 4 steps"
}
holds() { # JQ-EXPRESSION FILE [OPTION]
  jq -e ${3:-} "$1" "$2" >/dev/null || fail "$1 does not hold for $2: $(cat "$2")"
}

trains classification family --set trainer.class_weights=balanced
holds '[.id2label[]] == ["None of them", "only, \"there\"", "α-Helix; β"]' "$config"
holds 'all(.[]; .loss > 0 and .loss < 5)' "$run/trainer.jsonl" -s

# the constant adds nothing to the loss, and its scaling gives the constant back
trains regression '[constant,number]'
holds '.head.scaling[0] == [3.5, 1] and (.head.scaling[1] | .[0] > 4 and .[0] < 6 and .[1] > 1 and .[1] < 3)' "$config"
holds 'all(.[]; .loss > 0 and .loss < 5 and .accuracy == null)' "$run/trainer.jsonl" -s

# two labels in all: steps without one change nothing
trains regression rare
holds '.head.scaling == [[2, 0.5]]' "$config"
holds '.[-1].skipped_updates > 0 and any(.[]; .loss == null) and any(.[]; .loss != null)' "$run/trainer.jsonl" -s
