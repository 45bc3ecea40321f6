#!/usr/bin/env bash
# A run whose processes are stopped by a signal: `ps`, `runs` and `doctor` say what it waits for, and the
# supervisor kills a stage that gives no sign of life and starts it again. The test moves the times in the run
# folder into the past instead of waiting until they are old.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
steps=(--set trainer.steps=1000000 --set trainer.checkpoint.every=1000000)
passes=(--set "evaluator.mask_rates=[0.1, 0.2, 0.3, 0.4]") # so that an evaluation has several batches

# jq would take most of the test's time, which is spent waiting. The JSON is one line, and the objects are flat.
state_of() { plm-pipeline ps --run run --json | grep -oE "[{]\"stage\":\"$1\"[^}]*[}]"; }
field() { [[ $(state_of "$1") =~ \"$2\":\"?$3\"?[,}] ]]; }
pid_of() {
  [[ $(state_of "$1") =~ \"pid\":([0-9]+)[,}] ]] || fail "no process of $1"
  echo "${BASH_REMATCH[1]}"
}
is_told() { # REGEX ARGUMENTS…: whether this command says it
  plm-pipeline "${@:2}" >told 2>told.err || true
  grep -qE -- "$1" told
}
tells() { is_told "$@" || fail "plm-pipeline ${*:2}: $(cat told told.err)"; }
stepping() { [[ $(state_of trainer) =~ \"step_age_s\":[0-9][.,}] ]]; } # less than ten seconds ago
start() { # ARGUMENTS…
  plm-pipeline up pipeline.yaml "$@" "${steps[@]}" >up.out 2>up.err </dev/null &
  up=$!
}
stop() {
  expect 0 plm-pipeline down --run run
  wait "$up" || true
}

# ---- without a watchdog, everybody tells of stages that are stopped ----------------------------------------
start --set supervisor.silent_s=0
wait_for 120 stepping
expect 0 plm-pipeline doctor pipeline.yaml -q
! grep -q ' run ' out || fail "doctor finds something in a healthy run: $(cat out)"
wait_for 120 grep -q pid run/peers.trainer.json # it tells each second who serves it
tells '^run +running .* 1$' runs .
[ "$(wc -l <told)" = 2 ] || fail "a healthy run: $(cat told)"
packer=$(pid_of packer) trainer=$(pid_of trainer)
suspend "$packer" "$trainer"
tells 'packer.0: stopped by a signal' ps --run run
says told 'trainer.0: stopped by a signal'
tells '^  packer.0: stopped by a signal' runs .
plm-pipeline runs . --json | jq -e '.packer_activities[0] | .packer == "packer.0" and
  (.activity | startswith("stopped by a signal"))' >/dev/null || fail "runs --json: $(plm-pipeline runs . --json)"
tells 'warning +run +packer.0 .*stopped by a signal' doctor pipeline.yaml -q
jq -c '.time -= 60' run/trainer.jsonl >aged
cat aged >run/trainer.jsonl # the same file, which is locked
touch -d '1 hour ago' run/trainer.lock
tells 'no step for 1:[0-9]+$' runs .
kill -CONT "$packer" "$trainer"
wait_for 120 stepping
stop

# ---- with one, they are killed and started again -----------------------------------------------------------
start --set supervisor.silent_s=8
wait_for 120 stepping
kill -STOP "$(pid_of packer)" "$(pid_of evaluator)" "$(pid_of trainer)"
for stage in packer evaluator trainer; do
  wait_for 120 field $stage restarts 1
  wait_for 120 field $stage ready true
  says up.err "$stage.0 has given no sign of life for [0-9]+ s .supervisor.silent_s.: killing it"
  says up.err "$stage.0 gave no sign of life and was killed; restarting it"
done
wait_for 120 stepping
stop

# ---- so is a stage whose computing thread hangs while its other threads live on ------------------------------
# Only the thread that computes stops, before it writes for the N-th time that it does this. Each such time
# counts as a second (PLM_STOP_TICK), so that each sign is written.
hangs() { # STAGE SETTING DOING N WRITTEN STAGE…: what is in its file then begins with WRITTEN
  local file=pulse.${1/packer/packer.0}.json
  rm -f go-on
  (
    export PLM_STOP_UNTIL=$PWD/go-on PLM_STOP_TICK=1 PLM_STOP_HOLDING="{\"doing\":\"$3"
    stopping_at "rename:*/$file#$4" plm-pipeline up pipeline.yaml "${@:6}" "${steps[@]}" "${passes[@]}" \
      --set supervisor.silent_s=3 --set supervisor.silent_start_s=3 >up.out 2>up.err </dev/null
  ) &
  up=$!
  wait_for 120 grep -qsF "{\"doing\":\"$5" "run/$file"
  wait_for 120 grep -qE "$1.0 has given no sign of life for [0-9]+ s .supervisor.$2.: killing it" up.err
  touch go-on # the next one does not hang
  wait_for 120 field "$1" ready true
  says up.err "$1.0 gave no sign of life and was killed; restarting it"
}
goes_on() {
  wait_for 120 stepping
  stop
}
must_be_there "$PLM_BUILD/tests/lib/stop_at.so"
rm -rf run
hangs evaluator silent_s "evaluating step 0 (valid)" 2 "evaluating step 0 (valid)"
! grep -q 'trainer.0 gave no sign' up.err || fail "the trainer was killed as well"
goes_on
rm -rf run
hangs trainer silent_start_s "loading the weights" 1 "making the model"
goes_on
# a packer before it is ready
rm -rf run
hangs packer silent_s "opening corpus" 1 "starting"
goes_on
# within a file: it has said how far it is
rm -rf run
hangs evaluator silent_start_s "verifying step 0" 3 "verifying step 0 ("
goes_on
hangs trainer silent_start_s "reading the newest checkpoint" 3 "reading the newest checkpoint ("
goes_on
hangs trainer silent_start_s "loading the weights" 3 "loading the weights ("
goes_on
# while it waits for packers, of which there are none
for case in "evaluator silent_s" "trainer silent_start_s"; do
  rm -rf run
  read -r stage setting <<<"$case"
  hangs "$stage" "$setting" "waiting for packers" 3 "waiting for packers" trainer evaluator
  expect 0 plm-pipeline scale packer=1 --run run
  goes_on
done
