#!/usr/bin/env bash
# A failing fsync makes a checkpoint fail with a message, training continues and earlier checkpoints are
# intact. A corrupt newest checkpoint is skipped. (A full disk: test_full_disk.sh.)
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config transformer
reference=$PLM_TMP/reference
run_undisturbed "$reference"

# ---- a failing fsync -----------------------------------------------------------------------------
# failing RUN CALL:PATTERN: these calls of what the shell then starts fail, on files of the run
failing() {
  mkdir -p "$1" # the packer also creates it, perhaps later
  export PLM_FAULTS_BELOW PLM_FAULTS_LOG PLM_FAULTS_CALL=$2 PLM_FAULTS_AT=all PLM_FAULTS_HOW=EIO
  PLM_FAULTS_BELOW=$(realpath "$1") PLM_FAULTS_LOG=$(mktemp "$PLM_TMP/faults.XXXXXX")
  export LD_PRELOAD=$PLM_BUILD/tests/lib/faults.so
}
if [ -e "$PLM_BUILD/tests/lib/faults.so" ]; then
  run=$PLM_TMP/fsync
  start_packer "$run"
  (failing "$run" 'fsync:*/.tmp-step_00000020/*' && run_trainer "$run") ||
    fail "the run with a failed fsync ended with $?"
  [ "$(grep -c 'checkpoint [0-9]* FAILED' "$PLM_TMP/trainer.log")" -eq 1 ] || fail "not one checkpoint failed"
  grep -q "checkpoint 20 FAILED" "$PLM_TMP/trainer.log" || fail "nobody says that checkpoint 20 failed"
  [ ! -e "$run/checkpoints/step_00000020" ] || fail "a checkpoint without fsync was published"
  same_run "$reference" "$run" 60
  # the evaluator distinguishes it from one that was deleted
  rm -r "$run/checkpoints/step_00000040"
  "$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set evaluator.max_tokens=500 \
    >"$PLM_TMP/evaluator.log" 2>&1 || fail "the evaluator of a run with a failed fsync ended with $?"
  skipped() { jq -r "select(.step == $1).skipped" "$run/evaluator.jsonl"; }
  [[ $(skipped 20) == "not published: "*"Input/output error"* ]] || fail "step 20: $(skipped 20)"
  [ "$(skipped 40)" = "deleted before evaluation" ] || fail "step 40: $(skipped 40)"

  # a checkpoint that cannot be read, whose evaluator is killed, and that is deleted then: the next
  # evaluator reports it, although later ones are evaluated already
  rm "$run/evaluator.jsonl"
  (failing "$run" 'open:*/step_00000050/model*' &&
    exec "$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" \
      --set evaluator.max_tokens=500 >"$PLM_TMP/evaluator.log" 2>&1) &
  evaluator=$!
  since=$SECONDS
  until any_line "$run/evaluator.jsonl" '.step == 60 and .loss != null' >/dev/null 2>&1; do
    still_waiting "$since" "step 60 has not been evaluated"
    kill -0 "$evaluator" || fail "the evaluator ended at a checkpoint that cannot be read: $(cat "$PLM_TMP/evaluator.log")"
    sleep 0.1
  done
  kill -9 "$evaluator"
  wait "$evaluator" 2>/dev/null
  [ "$(jq -r 'select(.step == 50) | .corrupt' "$run/evaluator.jsonl")" = false ] || fail "step 50 is not noted"
  rm -r "$run/checkpoints/step_00000050"
  "$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set evaluator.max_tokens=500 \
    >"$PLM_TMP/evaluator.log" 2>&1 || fail "the evaluator after the deletion ended with $?"
  [ "$(skipped 50 | tail -n 1)" = "deleted before evaluation" ] || fail "step 50: $(skipped 50)"

  # too many failures in a row end the run, and the last good checkpoint is intact
  run=$PLM_TMP/fsync-for-ever
  stop_packer
  start_packer "$run"
  (failing "$run" 'fsync:*/.tmp-step_000000[1-6]?/*' && run_trainer "$run" \
    --set trainer.checkpoint.every=2 --set trainer.checkpoint.max_failed_checkpoints=2)
  status=$?
  [ "$status" -eq 6 ] || fail "the run with failing checkpoints ended with $status"
  grep -q "checkpoints in a row failed" "$PLM_TMP/trainer.log" || fail "no reason given"
  run_trainer "$run" --set trainer.checkpoint.every=10 || fail "it does not resume"
  stop_packer
  diff <(exact_metrics "$reference/trainer.jsonl") <(exact_metrics "$run/trainer.jsonl") || fail "the resumed metrics differ"
else
  echo "no faults.so under sanitizers"
fi

# ---- the metrics cannot be written, so several checkpoints in a row fail before they begin ---------
run=$PLM_TMP/metrics
: >"$PLM_TMP/trainer.log"
start_packer "$run"
# The first stop is before line 13. A line is tried again after each step and before each checkpoint, so the second stop
# is at step 34, when the checkpoints of steps 20 and 30 have failed (and that of step 10, if it was still being written).
start_trainer_until 'write:*/trainer.jsonl#13,36' "$run" --set trainer.checkpoint.max_failed_checkpoints=100
until_stopped "$trainer_pid" || fail "the trainer ended before step 13"
prlimit --pid "$trainer_pid" --fsize="$(stat -c %s "$run/trainer.jsonl"):" # the log is shorter
kill -CONT "$trainer_pid"
until_stopped "$trainer_pid" || fail "the trainer ended although it may miss 100 checkpoints"
[ "$(lines_of "$run/trainer.jsonl")" -eq 12 ] || fail "a line was written beyond the limit"
prlimit --pid "$trainer_pid" --fsize=unlimited:
kill -CONT "$trainer_pid"
wait "$trainer_pid" || fail "the run whose metrics could not be written for a while ended with $?"
[ "$(lines_of "$run/trainer.jsonl")" -eq 60 ] || fail "lines are missing"
"$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set evaluator.max_tokens=500 \
  >"$PLM_TMP/evaluator.log" 2>&1 || fail "the evaluator ended with $?"
stop_packer
failed=$(grep -c 'checkpoint [0-9]* FAILED' "$PLM_TMP/trainer.log")
skipped=$(grep -c 'not published: .*File too large' "$run/evaluator.jsonl")
[ "$failed" -ge 2 ] && [ "$skipped" -eq "$failed" ] || fail "$failed checkpoints failed; reported: $(grep skipped "$run/evaluator.jsonl")"

# ---- a corrupt newest checkpoint ---------------------------------------------------------------
run=$PLM_TMP/corrupt
start_packer "$run"
start_trainer_for "$run" 34
kill_trainer
newest=$(basename "$(ls -d "$run"/checkpoints/step_* | tail -n 1)")
printf 'x' | dd of="$run/checkpoints/$newest/optimizer.safetensors" bs=1 seek=5000 conv=notrunc \
  2>/dev/null
run_trainer "$run" || fail "the run over a corrupt checkpoint ended with $?"
grep -q "$newest" "$PLM_TMP/trainer.log" || fail "nobody names the corrupt checkpoint"
[ -e "$run/checkpoints/.bad-$newest" ] || fail "the corrupt one was not moved aside"
same_run "$reference" "$run" 60
stop_packer

# if all checkpoints are corrupt, the trainer refuses to start
for name in "$run"/checkpoints/step_*; do echo >>"$name/MANIFEST"; done
rm "$run/DONE"
! run_trainer "$run" || fail "a run without a valid checkpoint continued"
