# shellcheck shell=bash
# kill_and_resume ARCHITECTURE PRECISION [MOMENTS]: makes a corpus and a configuration, and calls kill_and_compare.
# kill_and_compare WHAT [MOMENTS]: kills a trainer with SIGKILL at several moments, some of them during publishing, and
# resumes it each time. The run must end up bit-identical to an undisturbed one.
# MOMENTS has a line for each, as for kill_at; without it, there are eleven.
# Sourced by a script for the U-Net (all moments), and by others for what has other state to save: published architectures,
# and clusters, which a transformer trains. A patch U-Net is killed in tests/integration/ranks/test_ranks_resume.sh.
. "$PLM_ROOT/tests/support/shell/trainer.sh"

# kill_at publishing NAME RUN: the trainer is killed before .tmp-NAME is renamed to NAME
# kill_at lines N RUN: when trainer.jsonl has N lines
# kill_at call CALL:PATTERN#N RUN: before this call
kill_at() {
  local what=$1 where=$2 run=$3
  case $what in
    lines) start_trainer_for "$run" "$where" ;;
    call) start_trainer_until "$where" "$run" ;;
    publishing) start_trainer_until "rename:*/checkpoints/$where#1" "$run" ;;
  esac
  until_stopped "$trainer_pid" || fail "the trainer ended before $what $where"
  kill_trainer
  [ "$what" = publishing ] || return 0
  [ -e "$run/checkpoints/.tmp-$where" ] || fail "no .tmp-$where"
  [ ! -e "$run/checkpoints/$where" ] || fail "$where exists beside .tmp-$where"
}

kill_and_resume() {
  small_corpus corpus
  trainer_config "$1" "$2"
  kill_and_compare "$1" "${@:3}"
}

every_moment='publishing step_00000000
lines 7
publishing step_00000010
call rename:*/endpoints.json#1
publishing step_00000020
lines 27
call write:*/.tmp-step_00000030/optimizer.safetensors#1
lines 38
publishing step_00000040
call rename:*/checkpoints/latest#1
publishing step_00000060'

kill_and_compare() {
  local reference=$PLM_TMP/reference run=$PLM_TMP/killed what where

  must_be_there "$PLM_BUILD/tests/lib/stop_at.so" # before the long undisturbed run
  run_undisturbed "$reference"

  start_packer "$run"
  while read -r what where; do
    kill_at "$what" "$where" "$run"
  done <<<"${2:-$every_moment}"
  run_trainer "$run" || fail "the resumed run ended with $?"
  [ -e "$run/DONE" ] || fail "DONE is missing"
  [ -z "$(find "$run/checkpoints" -name '.tmp-*')" ] || fail "unfinished folders are left"
  same_run "$reference" "$run" 60
  [ "$(readlink "$run/checkpoints/latest")" = step_00000060 ] || fail "latest is not step 60"
  echo "$1: bit-identical after kills during publishing and elsewhere"
}
