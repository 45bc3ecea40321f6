#!/usr/bin/env bash
# What the test scripts check with must be able to fail.
. "$PLM_ROOT/tests/support/lib.sh"

: >empty
echo '{"step": 1, "loss": 2.5} {"step": 2}' >lines
! jq -e .step empty || fail "jq -e accepts an empty file"
! jq -e . </dev/null || fail "jq -e accepts no input"
! jq -e 'select(.step == 3)' lines || fail "jq -e accepts a filter without a match"
! jq -e .loss missing 2>/dev/null || fail "jq -e accepts a missing file"
[ "$(jq -er '.step' lines)" = $'1\n2' ] || fail "jq -er changes what jq prints"
[ "$(jq -c 'select(.loss)' lines)" = '{"step":1,"loss":2.5}' ] || fail "jq without -e changes what it prints"

seq 100000 | matches -x 1 || fail "a match is a failure if the writer is not done"
! seq 10 | matches -x 11 || fail "matches accepts lines without a match"
! matches . </dev/null || fail "matches accepts no input"
