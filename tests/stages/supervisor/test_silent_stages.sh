#!/usr/bin/env bash
# A run whose processes are stopped by a signal: `ps`, `runs` and `doctor` say what it waits for, and the
# supervisor kills a stage that gives no sign of life and starts it again.
. "$PLM_ROOT/tests/support/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
steps=(--set trainer.steps=1000000 --set trainer.checkpoint.every=1000000)

pid_of() { plm-pipeline ps --run run --json | jq ".[] | select(.stage == \"$1\").pid"; }
field() { [ "$(plm-pipeline ps --run run --json | jq -r ".[] | select(.stage == \"$1\").$2")" = "$3" ]; }
tells() { plm-pipeline "${@:2}" >told 2>told.err; grep -qE -- "$1" told; }
stepping() { plm-pipeline ps --run run --json | jq -e '.[] | select(.stage == "trainer") | .step_age_s < 10' >/dev/null; }

# ---- without a watchdog, everybody tells -----------------------------------------------------------------
plm-pipeline up pipeline.yaml "${steps[@]}" --set supervisor.silent_s=0 >up.out 2>up.err </dev/null &
up=$!
wait_for 120 stepping
expect 0 plm-pipeline doctor pipeline.yaml -q
! grep -q ' run ' out || fail "doctor finds something in a healthy run: $(cat out)"
packer=$(pid_of packer)
kill -STOP "$packer"
wait_for 120 tells 'trainer.0: waiting for packers [0-9]+ s' ps --run run
says told 'packer.0: stopped by a signal'
tells 'waiting for packers' runs . || fail "runs: $(cat told told.err)"
tells 'warning +run +trainer.0 .*waiting for packers' doctor pipeline.yaml -q || fail "doctor: $(cat told told.err)"
says told 'warning +run +packer.0 .*stopped by a signal'
kill -CONT "$packer"
wait_for 120 stepping
trainer=$(pid_of trainer)
kill -STOP "$trainer"
wait_for 120 tells 'no step for [0-9]+ s' runs .
tells 'trainer.0: stopped by a signal' ps --run run || fail "ps: $(cat told told.err)"
kill -CONT "$trainer"
wait_for 120 stepping
expect 0 plm-pipeline down --run run
wait "$up" || true

# ---- with one, they are killed and started again ---------------------------------------------------------
plm-pipeline up pipeline.yaml "${steps[@]}" --set supervisor.silent_s=3 >up.out 2>up.err </dev/null &
up=$!
for stage in packer evaluator trainer; do
  wait_for 120 stepping
  kill -STOP "$(pid_of $stage)"
  wait_for 120 field $stage restarts 1
  wait_for 120 field $stage ready true
  says up.err "$stage.0 has given no sign of life for [0-9]+ s .supervisor.silent_s.: killing it"
  says up.err "$stage.0 gave no sign of life and was killed; restarting it"
done
wait_for 120 stepping
expect 0 plm-pipeline down --run run
wait "$up" || true
