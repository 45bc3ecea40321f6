#!/usr/bin/env bash
# Ctrl-C leaves a checkpoint and no process, and the resumed run has the bits of an undisturbed one. Two
# runs share the host. Both are longer than the test needs, so that a slow machine cannot miss the moment
# to interrupt; they are stopped when they have what is compared.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml unet
endless=(--set trainer.steps=1000000 --set trainer.checkpoint.every=20 --set trainer.checkpoint.keep_last=100000)

plm-pipeline up pipeline.yaml --run quiet "${endless[@]}" >quiet.out 2>quiet.err </dev/null &
undisturbed=$!
mkdir other
cp pipeline.yaml other/file.yaml
plm-pipeline up pipeline.yaml --run stopped "${endless[@]}" >up.out 2>up.err </dev/null &
up=$!

# interrupt PID RUN FILE COMMAND: Ctrl-C of `up` on this run, whose stderr is in the file; the step goes to $step. It
# names the command that continues the run.
interrupt() {
  local status=0
  kill -INT "$1"
  wait "$1" || status=$?
  [ "$status" -eq 130 ] || { tail -n 40 "$3"; fail "Ctrl-C of $2 ended with $status"; }
  nobody_left "$PWD/$2" || fail "a process of $2 is left after Ctrl-C"
  step=$(tail -n 1 "$2/trainer.jsonl" | jq .step)
  expect 0 plm-pipeline checkpoints "$2" --verify
  [ -d "$(printf '%s/checkpoints/step_%08d' "$2" "$step")" ] || fail "$2 has no checkpoint at the step it stopped"
  grep -qF "stopped; \`$4\` with the same --set will continue from step $step" "$3" ||
    fail "$2 does not say where it continues: $(grep stopped "$3")"
  [ ! -e "$2/DONE" ] || fail "DONE on the unfinished run $2"
}

wait_for 30 test -s stopped/trainer.jsonl
interrupt "$up" stopped up.err 'plm-pipeline up --run stopped'

# The next checkpoint after those 20 steps is compared, and the lines up to it.
compared=$((step / 20 * 20 + 40))
name=$(printf 'checkpoints/step_%08d' "$compared")
plm-pipeline up pipeline.yaml --run stopped "${endless[@]}" >up.out 2>up.err </dev/null &
up=$!
wait_for 60 test -d "stopped/$name"
says up.err "resuming after step $step"
interrupt "$up" stopped up.err 'plm-pipeline up --run stopped'
plm-pipeline up other/file.yaml --set "corpus=$PWD/corpus" --run "$PWD/third" "${endless[@]}" >up.out 2>third.err </dev/null &
up=$!
wait_for 60 test -s third/trainer.jsonl
interrupt "$up" third third.err "plm-pipeline up other/file.yaml --run $PWD/third"
wait_for 60 test -d "quiet/$name"
interrupt "$undisturbed" quiet quiet.err 'plm-pipeline up --run quiet'

for run in quiet stopped; do
  head -n "$compared" $run/trainer.jsonl >$run.lines
  exact_metrics $run.lines >$run.exact
done
[ "$(wc -l <quiet.exact)" -eq "$compared" ] || fail "the undisturbed run has not one line a step"
cmp quiet.exact stopped.exact || fail "the resumed run's metrics differ"
for file in model.safetensors optimizer.safetensors; do
  cmp "quiet/$name/$file" "stopped/$name/$file" || fail "$file of the resumed run differs"
done
