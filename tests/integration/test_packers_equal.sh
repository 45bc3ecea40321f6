#!/usr/bin/env bash
# One packer, two packers, and packers that are killed all the time give the same run.
. "$(dirname "$0")/../support/stages.sh"
make_corpus 400
make_config patch_unet

run=$PLM_TMP/one
start_packer "$run"
run_trainer "$run" || fail "the run with one packer ended with $?"
kill "$packer_pid"

run=$PLM_TMP/two
start_packer "$run"
start_packer "$run"
run_trainer "$run" || fail "the run with two packers ended with $?"
same_run "$PLM_TMP/one" "$run" 60

run=$PLM_TMP/killed
start_packer "$run"
victim=$packer_pid
start_packer "$run"
start_trainer "$run"
for lines in 5 15 25 35 45; do
  until_lines "$run" "$lines"
  kill -9 "$victim"
  wait "$victim" 2>/dev/null
  victim=$packer_pid
  start_packer "$run"
done
wait "$trainer_pid" || fail "the run with killed packers ended with $?"
same_run "$PLM_TMP/one" "$run" 60
