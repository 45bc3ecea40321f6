#!/usr/bin/env bash
# A test that waits for ever is ended, and names what it waited for; a test that is skipped says why; a test that
# leaves something behind fails, as does one that uses memory that is not its own, or locks wrongly.
. "$PLM_ROOT/tests/support/shell/lib.sh"
tool=$PLM_BUILD/tests/support/harness/hang/tool_hang

# ---- programs ----
# run_tool STATUS FILTER [GROUP]: with a limit of one second for each test
run_tool() {
  local status=$1 got=0
  PLM_TEST_FILTER=$2 PLM_TEST_LIMIT_S=4 "$tool" "${@:3}" >out 2>err || got=$?
  [ "$got" -eq "$status" ] || fail "$2 ended with $got: $(cat out err)"
}
run_tool 134 'never*'
says err '^FAILED: never_waits_long_enough has not ended within 1 s; it waits here:$'
says err 'wait_for_a_child at tool_hang.c:[0-9]+'
run_tool 134 'joins*'
says err '^FAILED: joins_nobody has not ended within 1 s; it waits here:$'
says err 'wait_for_a_thread at tool_hang.c:[0-9]+'
run_tool 134 none group
says err '^FAILED: the preparation of all tests has not ended within 1 s; it waits here:$'

# A test is counted, and its state and its result are its own.
PLM_TEST_FILTER='is_*' expect 0 "$tool"
says out '^skipped test: is_left_out: this machine lacks it$'
PLM_TEST_FILTER='fails' expect 1 "$tool"
! grep -q 'skipped test' out || fail "a test that fails counts as skipped"

# A test leaves nothing behind.
run_tool 1 leaves_a_descriptor
says err '^FAILED: leaves_a_descriptor has not closed descriptor [0-9]+, .*/tool_hang$'
run_tool 1 leaves_a_child
says err '^FAILED: leaves_a_child has a child that still runs$'
case $PLM_BUILD in
  */asan | */tsan) exit ;; # the memory and the locks are the sanitizer's
esac
run_tool 1 leaves_memory
says err '^FAILED: leaves_memory has not released 2 blocks of memory: 100, 5 bytes, taken in$'
[ "$(grep -c 'leaves_memory at tool_hang.c:' err)" -eq 2 ] || fail "not both places are named: $(cat err)"
run_tool 134 writes_behind
says err '^FAILED: byte 3 of a block of 3 bytes was written$'

run_tool 134 writes_behind_aligned
says err '^FAILED: byte 72 of a block of 72 bytes was written$'
run_tool 134 writes_before
says err '^FAILED: byte -1 of a block of 8 bytes was written$'
run_tool 134 releases_twice
says err '^FAILED: byte 0 of a block of 24 bytes is released again$'
run_tool 134 reads_behind
says err '^FAILED: reads_behind uses byte 12 of a block of 12 bytes, here:$'
[ "$(grep -c '^reads_behind at tool_hang.c:' err)" -eq 2 ] || fail "not both places are named: $(cat err)"
run_tool 134 reads_what_is_released
says err '^FAILED: reads_what_is_released uses byte 99999 of a block of 100000 bytes that is released, here:$'
run_tool 134 reads_what_was_moved
says err '^FAILED: reads_what_was_moved uses byte 0 of a block of 100 bytes that is released, here:$'
run_tool 0 reads_what_was_not_written
run_tool 1 raises_a_fault # which has no address
run_tool 0 takes_many
run_tool 0 takes_too_much
run_tool 134 writes_behind_what_stayed
says err '^FAILED: byte 24 of a block of 24 bytes was written$'
run_tool 134 reads_before
says err '^FAILED: reads_before uses byte -1 of a block of 4096 bytes, here:$'

run_tool 134 locks_twice
says err '^FAILED: a thread locks a mutex that it holds$'
run_tool 134 unlocks_another_s
says err '^FAILED: a thread unlocks a mutex that it does not hold$'
