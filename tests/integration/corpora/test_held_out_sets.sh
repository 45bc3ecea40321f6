#!/usr/bin/env bash
# evaluator.sets: one run that is evaluated on its own corpus and on two further ones. Every line says which set it is
# about, every view tells the sets apart, and checkpoints are judged by the run's own corpus.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_fasta other.fasta 200 5
expect 0 plm-pipeline ingest other.fasta --corpus other --split train=0,valid=0.5,test=0.5 -q
small_config pipeline.yaml patch_unet
cp pipeline.yaml plain.yaml
cat >>pipeline.yaml <<'END'
  sets:
    - {name: far, corpus: other}
    - {name: far-test, corpus: other, split: test}
END

expect 0 plm-pipeline config pipeline.yaml
says out "evaluator\.sets.*\[\{name: \"far\", corpus: $PLM_TMP/other, split: valid\}, \{name: \"far-test\", .*split: test\}\]|sets: \[\{name: \"far\", corpus: $PLM_TMP/other, split: valid\}, \{name: \"far-test\", .*split: test\}\]"
expect 0 plm-pipeline up pipeline.yaml --run run
expect 0 plm-pipeline up plain.yaml --run plain

# Each checkpoint has a line for each set, the run's own first.
jq -se '[.[] | select(.step == 12) | [.set, .split]] == [["corpus", "valid"], ["far", "valid"], ["far-test", "test"]]' \
  run/evaluator.jsonl >/dev/null || { cat run/evaluator.jsonl >&2; fail "the sets of step 12"; }
jq -se '(map(.step) | unique) as $steps | length == 3 * ($steps | length)' run/evaluator.jsonl >/dev/null || fail "a line each"

# A run without sets reports the same numbers on its own corpus, and `evaluate` the same on a set.
exact='del(.seconds, .lag_steps, .time, .checkpoint, .cut)'
jq -c "select(.set == \"corpus\") | $exact" run/evaluator.jsonl >own
jq -c "$exact" plain/evaluator.jsonl >without
cmp own without || fail "the sets change the numbers on the run's own corpus"
expect 0 plm-pipeline evaluate --checkpoint run/checkpoints/step_00000012 --corpus other --split test --max-tokens 4000 --json
jq -c "$exact | del(.set)" out >once
jq -c "select(.step == 12 and .set == \"far-test\") | $exact | del(.set)" run/evaluator.jsonl >far-test.exact
cmp once far-test.exact || fail "the set differs from evaluate"

# The views.
expect 0 plm-pipeline metrics --run run --keys step,set,split --csv
says out '^12,far-test,test$'
expect 0 plm-pipeline metrics --run run --plot
says out 'far-test test'
expect 0 plm-pipeline report run --output report.html
says report.html "far-test test"
expect 0 plm-pipeline checkpoints run
says out 'best: set and split corpus valid'
expect 0 plm-pipeline checkpoints plain
! grep -q 'set and split' out || fail "a run without sets speaks of them"
expect 0 plm-pipeline checkpoints run --json
jq -se 'flatten | all(.[]; .judged_by == "corpus valid")' out >/dev/null || fail "who judges"
jq -c 'select(.set == "corpus") | .loss' run/evaluator.jsonl | sort -u >own.losses
jq -c '.[].loss' out | sort -u >judged
cmp own.losses judged || fail "checkpoints are judged by another set"
grep -qa 'far-test/test/loss' run/tensorboard/evaluator/*[0-9] || fail "TensorBoard"
grep -qa 'far-test/test/attention_entropy/encoder.0' run/tensorboard/evaluator/*[0-9] || fail "TensorBoard: entropies"
settings=run/tensorboard/evaluator/events.out.tfevents.0000000000.hparams
# has_settings FILE TEXT COUNT: the table of settings holds the text that many times
has_settings() {
  local found
  found=$(grep -ao "$2" "$1" | wc -l)
  [ "$found" -eq "$3" ] || fail "$2 is $found times in $1, not $3"
}
has_settings $settings 'far-test/test/loss' 1
has_settings $settings '_hparams_/session_start_info' 1
has_settings $settings '_hparams_/session_end_info' 1
expect 0 plm-pipeline export --checkpoint run/checkpoints/step_00000012 --output model
says model/README.md '^\| \| valid \| far valid \| far-test test \|'
says model/README.md 'name: "far, split valid"'

# After a restart, only what is missing is evaluated: here the line of one set is cut.
jq -c 'select(.step < 12 or .set != "far")' run/evaluator.jsonl >kept
cp kept run/evaluator.jsonl
expect 0 plm-pipeline up pipeline.yaml --run run
[ "$(wc -l <run/evaluator.jsonl)" -eq $(($(wc -l <kept) + 1)) ] || fail "not one line more"
tail -n 1 run/evaluator.jsonl | jq -e '.set == "far" and .step == 12' >/dev/null || fail "another line"

has_settings $settings '_hparams_/session_start_info' 1
has_settings $settings '_hparams_/session_end_info' 1

# A set may join at a resume; older checkpoints that still exist are evaluated on it as well.
expect 0 plm-pipeline up plain.yaml --run plain --set 'evaluator.sets={name: late, corpus: other}'
jq -se '[.[] | select(.set == "late") | .step] == [0, 4, 8, 12]' plain/evaluator.jsonl >/dev/null ||
  { cat plain/evaluator.jsonl >&2; fail "the set that joined late"; }

has_settings plain/tensorboard/evaluator/*.hparams 'late/valid/loss' 1

# Errors that say what to do.
expect 6 plm-evaluator -c pipeline.yaml --run run --set 'evaluator.sets={name: gone, corpus: missing}'
says err 'missing'
expect 0 plm-pipeline ingest other.fasta --corpus bytes --tokenizer byte -q
expect 2 plm-evaluator -c pipeline.yaml --run run --set 'evaluator.sets={name: b, corpus: bytes}'
says err 'corpus of "b" has another tokenizer'
expect 2 plm-evaluator -c pipeline.yaml --run run --set 'evaluator.sets={name: t, corpus: other, split: train}'
says err 'no documents in split train'
