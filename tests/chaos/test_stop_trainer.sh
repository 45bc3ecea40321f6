#!/usr/bin/env bash
# SIGTERM and SIGUSR1: the trainer finishes or abandons its step, publishes and exits with 143. The run is
# resumed to the same bits.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config unet
reference=$PLM_TMP/reference run=$PLM_TMP/stopped

run_undisturbed "$reference"

# check_drained STATUS: the state is published under the step that it was taken after; there is no DONE
check_drained() {
  local status=$1 step
  [ "$status" -eq 143 ] || fail "a drained trainer ended with $status"
  [ ! -e "$run/DONE" ] || fail "DONE, but the run is not complete"
  step=$(lines_of "$run/trainer.jsonl")
  [ "$(readlink "$run/checkpoints/latest")" = "$(printf 'step_%08d' "$step")" ] ||
    fail "the newest checkpoint is not that of step $step"
}

start_packer "$run"
start_trainer_for "$run" 13
kill -TERM "$trainer_pid"
kill -CONT "$trainer_pid"
wait "$trainer_pid"
check_drained $?
[ "$(lines_of "$run/trainer.jsonl")" -ge 13 ] || fail "lines are missing"

# Without any grace time the running step is abandoned between its micro-batches.
start_trainer_for "$run" 33 --set trainer.stop_timeout_s=0
kill -USR1 "$trainer_pid"
kill -CONT "$trainer_pid"
wait "$trainer_pid"
check_drained $?

# Slurm's sequence: SIGUSR1 before the time limit, then SIGTERM. The trainer is suspended while both are
# sent, so that it cannot end in between.
start_trainer_for "$run" 40
kill -USR1 "$trainer_pid"
kill -TERM "$trainer_pid"
kill -CONT "$trainer_pid"
wait "$trainer_pid"
check_drained $?

# A stop while the trainer waits for a packer.
kill -9 "$packer_pid"
wait "$packer_pid" 2>/dev/null
before=$(lines_of "$run/trainer.jsonl")
start_trainer "$run"
since=$SECONDS
until jq -e .feed "$run/endpoints.json" >/dev/null 2>&1; do
  still_waiting "$since" "the trainer has not said where its feed is"
  kill -0 "$trainer_pid" 2>/dev/null || fail "the trainer ended without a packer"
done
kill -TERM "$trainer_pid"
wait "$trainer_pid"
check_drained $?
[ "$(lines_of "$run/trainer.jsonl")" -eq "$before" ] || fail "steps without a packer"

start_packer "$run"
run_trainer "$run" || fail "the resumed run ended with $?"
for name in "$run"/checkpoints/step_*; do # each drain wrote one more
  [ -e "$reference/checkpoints/$(basename "$name")" ] || echo "drained at $(basename "$name")"
done
same_run "$reference" "$run" 60

# A complete run has nothing left to do, and says so.
run_trainer "$run" || fail "a complete run ended with $?"
grep -q "complete at step 60" "$PLM_TMP/trainer.log" || fail "nobody says that the run is complete"

# A step of many micro-batches is abandoned if the grace time is too short for it. The signal comes when
# the step has begun.
run=$PLM_TMP/long
start_packer "$run"
start_trainer "$run" -v --set trainer.batch_tokens=4194304 --set trainer.stop_timeout_s=0.2
since=$SECONDS
until grep -q "step 1 begins: 16384 micro-batches" "$PLM_TMP/trainer.log"; do
  kill -0 "$trainer_pid" 2>/dev/null || fail "the trainer ended before its first step"
  still_waiting "$since" "the first step has not begun"
done
kill -TERM "$trainer_pid"
wait "$trainer_pid"
check_drained $?
grep -q "step 1 is abandoned after .* of 16384 micro-batches" "$PLM_TMP/trainer.log" ||
  fail "the long step was not abandoned"

# After a kill TensorBoard's curves reach at least the checkpoint that a resume continues from.
killed=$PLM_TMP/killed
start_packer "$killed"
start_trainer_until 'rename:*/checkpoints/latest#3' "$killed" # that of step 20
until_stopped "$trainer_pid" || fail "the trainer ended before its checkpoints"
kill_trainer
reached=$(readlink "$killed/checkpoints/latest")
[ "$reached" = step_00000010 ] || fail "$reached instead of step 10"
curve=$(cat "$killed"/tensorboard/trainer/* | grep -ao mask_rate | wc -l)
[ "$curve" -ge "$((10#${reached#step_}))" ] || fail "$curve steps of TensorBoard, but $reached"
