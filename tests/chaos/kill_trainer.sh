# shellcheck shell=bash
# kill_and_resume ARCHITECTURE [PRECISION]: kills a trainer with SIGKILL at several moments, some of them
# during publishing, and resumes it each time. The run must end up bit-identical to an undisturbed one.
# Sourced by a script for each architecture.
. "$PLM_ROOT/tests/support/trainer.sh"

# kill_while_publishing RUN NAME: kills before .tmp-NAME is renamed to NAME
kill_while_publishing() {
  local run=$1 name=$2
  until_stopped "$trainer_pid" || fail "the trainer ended before $name"
  kill -9 "$trainer_pid"
  wait "$trainer_pid" 2>/dev/null
  [ -e "$run/checkpoints/.tmp-$name" ] || fail "no .tmp-$name"
  [ ! -e "$run/checkpoints/$name" ] || fail "$name exists beside .tmp-$name"
  caught=$((caught + 1))
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
    # shellcheck disable=SC2086
    set -- $moment
    case $1 in
      while_publishing) start_trainer_until "rename:*/checkpoints/$2#1" "$run" ;;
      *) start_trainer "$run" ;;
    esac
    "kill_$1" "$run" "$2"
  done
  run_trainer "$run" || fail "the resumed run ended with $?"
  [ -e "$run/DONE" ] || fail "DONE is missing"
  [ -z "$(find "$run/checkpoints" -name '.tmp-*')" ] || fail "unfinished folders are left"
  same_run "$reference" "$run" 60
  [ "$(readlink "$run/checkpoints/latest")" = step_00000060 ] || fail "latest is not step 60"
  echo "$architecture: bit-identical after $caught kills during publishing and others elsewhere"
}
