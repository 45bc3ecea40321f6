#!/usr/bin/env bash
# Tables as people have them: what an objective cannot use is refused by `validate`, `up` and the trainer with the column and
# the corpus, before a step; missing labels, classes without training labels, constant numbers and odd names train. Then
# mixtures, resumes, and runs that begin with other heads.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
cat >table.py <<'PY'
import csv, random, sys
draw = random.Random(int(sys.argv[1]))
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
python3 table.py 2 >table.csv
plm-pipeline ingest table.csv --split-column set --corpus corpus -q \
  --labels number,constant:number,rare,family:class,only:class,late,letters:residues 2>ingest.log ||
  fail "ingest ended with $?: $(cat ingest.log)"
small_corpus plain 60
trainer_config transformer
sed -i 's/  steps: 60/  steps: 4/; s/batch_tokens: 512/batch_tokens: 256/; s/micro_batch_tokens: 256/micro_batch_tokens: 64/
  s/max_length: 128/max_length: 64/; s/cooldown_steps: 20/cooldown_steps: 2/; s/warmup_steps: 5/warmup_steps: 1/; s/threads: 2/threads: 1/' pipeline.yaml

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

# So is a set that the evaluator could not measure. A set that is not on this host is not looked at.
python3 table.py 6 | sed 's/α-Helix; β/foreign/; s/None of them/foreign/; s/only, ""there""/foreign/' >foreign.csv
plm-pipeline ingest foreign.csv --split-column set --corpus foreign -q --labels number,family:class,letters:class \
  2>ingest.log || fail "ingest ended with $?: $(cat ingest.log)"
with_set() {
  echo "evaluator.sets=[{name: far, corpus: absent}, {name: near, corpus: corpus}, {name: second, corpus: $1}]"
}
# shellcheck disable=SC2046 # words
{
  refused "evaluator.sets: second: corpus $PLM_TMP/plain has no labels" $(set_of regression number) \
    --set "$(with_set plain)"
  refused "evaluator.sets: second: corpus $PLM_TMP/foreign has no column of labels called rare" \
    $(set_of regression '[number,rare]') --set "$(with_set foreign)"
  refused "evaluator.sets: second: objective residues needs one column of kind residues, and letters" \
    $(set_of residues letters) --set "$(with_set foreign)"
  refused "evaluator.sets: second: the labels family of corpus $PLM_TMP/foreign have no class in common" \
    $(set_of classification family) --set "$(with_set foreign)"
  plm-pipeline validate pipeline.yaml $(set_of regression number) --set "$(with_set foreign)" >out.log 2>said.log ||
    fail "validate refuses sets with the labels: $(cat said.log)"
  plm-pipeline validate pipeline.yaml $(set_of regression number) --set "$(with_set plain)" --set corpus=absent \
    >out.log 2>said.log
  [ $? -eq 2 ] || fail "validate without the run's corpus ended otherwise: $(cat said.log)"
  says said.log "evaluator.sets: second: corpus .*/plain has no labels"
  # an evaluator that is started alone says the same at once
  plm-evaluator -c pipeline.yaml --run alone $(set_of regression number) \
    --set "evaluator.sets=[{name: second, corpus: plain}]" >out.log 2>said.log
  [ $? -eq 2 ] || fail "the evaluator ended otherwise: $(cat said.log)"
  says said.log "evaluator.sets: second: corpus .*/plain has no labels"
}

# The estimate of memory has the outputs that the corpus says: three families of (1 + 64) values are one more than two.
parameters() { plm-trainer -c pipeline.yaml --dry-run --json "$@" 2>&1 | jq .parameter_count; }
# shellcheck disable=SC2046 # words
{
  three=$(parameters $(set_of classification family)) two=$(parameters $(set_of classification family) --set corpus=absent)
  [ "$three" -eq $((two + 65)) ] || fail "$three parameters with the corpus, $two without"
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
holds() { # JQ-EXPRESSION FILE [OPTION...]
  jq -e "${@:3}" "$1" "$2" >/dev/null || fail "$1 does not hold for $2: $(cat "$2")"
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

# A mixture has the columns in any order, but with the same classes.
python3 table.py 3 | sed 's/α-Helix/another/' >others.csv
python3 table.py 4 >more.csv
plm-pipeline ingest others.csv --split-column set --corpus others -q --labels family:class 2>ingest.log ||
  fail "ingest ended with $?: $(cat ingest.log)"
plm-pipeline ingest more.csv --split-column set --corpus more -q --labels family:class,number 2>ingest.log ||
  fail "ingest ended with $?: $(cat ingest.log)"
mixture() { sed "s/^corpus: corpus/corpus: [{path: corpus, weight: 1}, {path: $1, weight: 1}]/" pipeline.yaml; }
mixture others >pair.yaml
plm-pipeline up pair.yaml --set trainer.objective=classification --set trainer.labels=family 2>said.log
[ $? -eq 2 ] || fail "other classes: $(cat said.log)"
says said.log "the labels family of corpus others have another kind or other classes than those of corpus corpus"
mixture more >pair.yaml
for objective in classification regression; do
  column=number
  [ $objective = regression ] || column=family
  plm-pipeline up pair.yaml trainer packer --run "mixed-$objective" --set "trainer.objective=$objective" \
    --set "trainer.labels=$column" 2>said.log || fail "a mixture ended with $?: $(cat said.log)"
  holds 'all(.[]; .loss_by_source | (.corpus > 0 and .more > 0))' "mixed-$objective/trainer.jsonl" -s
done

# another run: other columns, or another head
plm-pipeline up pair.yaml --run mixed-regression --set trainer.objective=regression --set trainer.labels=constant \
  --set corpus=corpus 2>said.log && fail "a resume with other labels did not end"
says said.log "corpus: the run was trained on 2 corpora|trainer.labels changed from"
start=$PLM_TMP/classification-family/checkpoints/latest
plm-pipeline up pipeline.yaml trainer packer --run "$PLM_TMP/classification-family" --set trainer.objective=classification \
  --set trainer.labels=family --set trainer.class_weights=balanced --set trainer.head.hidden_size=16 2>said.log &&
  fail "a resume with another head did not end"
says said.log "trainer.head.hidden_size changed from 0 to 16, which makes it another run"

# A new run keeps a head of the same shape; another one is drawn by the seed.
for labels in "classification family" "regression number" "residues letters"; do
  read -r objective column <<<"$labels"
  for run in a b; do
    plm-pipeline up pipeline.yaml trainer packer --run "$run-$objective" --set "trainer.init_from=$start" \
      --set "trainer.objective=$objective" --set "trainer.labels=$column" --set trainer.steps=1 \
      --set trainer.schedule.cooldown_steps=0 --set trainer.schedule.warmup_steps=0 2>said.log ||
      fail "a start with another head ended with $?: $(cat said.log)"
  done
  cmp "a-$objective/checkpoints/step_00000000/model.safetensors" "b-$objective/checkpoints/step_00000000/model.safetensors" ||
    fail "the new head of $objective is not the seed's"
  if [ "$objective" = classification ]; then
    says said.log "initial weights from .*step 4\\)$"
    cmp "a-$objective/checkpoints/step_00000000/model.safetensors" "$start/ema.safetensors" || fail "the head was not kept"
  else
    says said.log "initial weights from .*step 4\\); the head is new$"
  fi
done
