# shellcheck shell=bash
# kill_and_resume ARCHITECTURE [PRECISION]: kills a trainer with SIGKILL at several moments, some of them
# during publishing, and resumes it each time. The run must end up bit-identical to an undisturbed one.
# Sourced by a script for each architecture.
. "$PLM_ROOT/tests/support/trainer.sh"

# kill_while_publishing RUN NAME: kills as soon as .tmp-NAME exists; counts in $caught if it was in time
kill_while_publishing() {
  local run=$1 name=$2
  while [ ! -e "$run/checkpoints/.tmp-$name" ]; do
    [ -e "$run/checkpoints/$name" ] && break
    kill -0 "$trainer_pid" 2>/dev/null || fail "the trainer ended before $name"
  done
  kill -9 "$trainer_pid"
  wait "$trainer_pid" 2>/dev/null
  if [ -e "$run/checkpoints/.tmp-$name" ]; then
    caught=$((caught + 1))
    [ -e "$run/checkpoints/$name" ] && fail "$name exists beside .tmp-$name"
  fi
}

kill_after_lines() {
  until_lines "$1" "$2"
  kill -9 "$trainer_pid"
  wait "$trainer_pid" 2>/dev/null
}

kill_after_seconds() {
  sleep "$2"
  kill -9 "$trainer_pid"
  wait "$trainer_pid" 2>/dev/null
}

kill_and_resume() {
  local architecture=$1
  local reference=$PLM_TMP/reference run=$PLM_TMP/killed moment
  small_corpus corpus
  trainer_config "$architecture" "${2:-fp32}"

  run_undisturbed "$reference"

  start_packer "$run"
  caught=0
  for moment in "while_publishing step_00000000" "after_lines 7" "while_publishing step_00000010" \
    "after_seconds 0.1" "while_publishing step_00000020" "after_lines 27" "after_lines 38" \
    "while_publishing step_00000040" "while_publishing step_00000060"; do
    start_trainer "$run"
    # shellcheck disable=SC2086
    set -- $moment
    "kill_$1" "$run" "$2"
  done
  run_trainer "$run" || fail "the resumed run ended with $?"
  [ "$caught" -ge 1 ] || fail "no kill came during publishing"
  [ -e "$run/DONE" ] || fail "DONE is missing"
  [ -z "$(find "$run/checkpoints" -name '.tmp-*')" ] || fail "unfinished folders are left"
  same_run "$reference" "$run" 60
  [ "$(readlink "$run/checkpoints/latest")" = step_00000060 ] || fail "latest is not step 60"
  echo "$architecture: bit-identical after $caught kills during publishing and others elsewhere"
}
