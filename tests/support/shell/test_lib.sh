#!/usr/bin/env bash
# What the test scripts check with must be able to fail.
. "$PLM_ROOT/tests/support/shell/lib.sh"

: >empty
echo '{"step": 1, "loss": 2.5} {"step": 2}' >lines
! jq -e .step empty || fail "jq -e accepts an empty file"
! jq -e . </dev/null || fail "jq -e accepts no input"
! jq -e 'select(.step == 3)' lines || fail "jq -e accepts a filter without a match"
! jq -e .loss missing 2>/dev/null || fail "jq -e accepts a missing file"
[ "$(jq -er '.step' lines)" = $'1\n2' ] || fail "jq -er changes what jq prints"
[ "$(jq -c 'select(.loss)' lines)" = '{"step":1,"loss":2.5}' ] || fail "jq without -e changes what it prints"

# What never happens is named.
(longest_wait_s=1 && expect 0 sleep 600) 2>said && fail "expect waits for ever"
says said 'it has not ended within 1 s'
says said 'exit 124 instead of 0: sleep 600'
sleep 600 &
(longest_wait_s=1 && until_stopped $!) 2>said && fail "until_stopped accepts a process that runs"
says said "still waiting after 1 s: process $! has not stopped: sleep 600"
(longest_wait_s=1 && until_waiting $!) 2>said && fail "until_waiting accepts a process that waits for nothing"
says said "still waiting after 1 s: process $! does not wait for a signal: sleep 600"
(suspend $! && until_stopped $! && kill -KILL $!) || fail "suspend has not stopped a process that runs"
(suspend $!) 2>said && fail "suspend stops a process that has ended"
says said "there is no such process: $!|process $! ended before it stopped"

# A rank is found by its number, also while another one has not begun its program.
if has_mpi; then
  (
    . "$PLM_ROOT/tests/support/shell/ranks.sh"
    bash -c 'sleep 600 & begins=$!
      OMPI_COMM_WORLD_RANK=1 sleep 600 & echo $begins $! >launched
      until [ -e begin ]; do sleep 0.02; done
      OMPI_COMM_WORLD_RANK=0 sleep 600 & echo $! >first
      wait' &
    parent=$!
    wait_for 60 test -s launched
    read -r begins second <launched
    wait_for 60 rank_pid "$parent" 1
    [ "$(rank_pid "$parent" 1)" = "$second" ] || fail "rank 1 is not process $second"
    process=$(rank_pid "$parent" 0)
    [ -z "$process" ] || fail "rank 0 has not begun, and process $process is taken for it"
    : >begin
    process=$(started_rank "$parent" 0)
    wait_for 60 test -s first
    [ "$process" = "$(<first)" ] || fail "rank 0 is process $(<first), not $process"
    kill -KILL "$begins" "$second" "$process" "$parent"
  ) || exit
fi

seq 100000 | matches -x 1 || fail "a match is a failure if the writer is not done"
! seq 10 | matches -x 11 || fail "matches accepts lines without a match"
! matches . </dev/null || fail "matches accepts no input"

# A library that cannot be preloaded ends the script before the program runs.
: >ran
(PLM_BUILD=$PWD/nothing && stopping_at 'write:*#1' tee ran <<<'it ran' >/dev/null) 2>said && fail "a missing library is ignored"
says said 'nothing/tests/lib/stop_at.so is to be preloaded, and is not built'
[ ! -s ran ] || fail "the program runs without the library"
(
  . "$PLM_ROOT/tests/support/shell/trainer.sh"
  PLM_BUILD=$PWD/nothing
  start_trainer_until 'write:*#1' run
) >said 2>&1 && fail "start_trainer_until ignores a missing library"
says said 'nothing/tests/lib/stop_at.so is to be preloaded, and is not built'
[ ! -e trainer.log ] || fail "the trainer was started"
