#!/usr/bin/env bash
# The files of a gang: its log is rotated while the gang runs and loses no line, whoever is killed; and no file
# of Open MPI is left in /dev/shm, neither with trainer.hosts nor if `up` is killed together with the gang.
# shellcheck disable=SC2154 # up: gang.sh sets it
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/gang.sh"
small_corpus corpus
small_config pipeline.yaml unet
sed -i 's/  steps: 12/  ranks: 2\n  steps: 100000/; s/every: 4/every: 20/' pipeline.yaml
writer_of() { pgrep -P "$1" -x plm-gang-log; } # writer_of UP

# all_lines RUN: what `logs` prints is what the files hold, from the start of the gang
all_lines() {
  plm-pipeline logs trainer --run "$1" >lines 2>err
  find "$1/logs" -name 'trainer.0.log*' | sort -r | xargs cat | diff - lines || fail "logs prints something else than the files"
  says lines 'plm-trainer: 2 ranks, 2 of them on this host'
}

# ---- one start, several files ----
export PLM_LOG_BYTES=200
run=rotated
begin rotated --set trainer.steps=20
up_ends 0
! grep -q 'restarting' rotated.err || fail "the gang was started again: $(cat rotated.err)"
[ -e rotated/logs/trainer.0.log.1 ] || fail "the log was not rotated: $(ls -l rotated/logs)"
[ "$(find rotated/logs -name 'trainer.0.log*' -size +399c)" = "" ] || fail "a file is too large: $(ls -l rotated/logs)"
all_lines rotated
says lines 'complete at step 20'
says rotated.err '^trainer.0 *[|] complete at step 20'
nothing_left

# ---- `up` is killed, the writer of the log before it ----
export PLM_LOG_BYTES=100000
run=beheaded
begin beheaded
wait_for 60 has_steps beheaded 5
folder=$(folder_of beheaded)
first=$(writer_of $up)
kill -KILL "$first"
another() { [ -n "$(writer_of $up)" ] && [ "$(writer_of $up)" != "$first" ]; }
wait_for 60 another
kill -KILL $up
up_ends 137
gone() { [ ! -e "$folder" ]; }
wait_for 60 gone
wait_for 60 nobody
nothing_left
all_lines beheaded
says lines 'plm-trainer: stopped after step'

# ---- both are killed at once: the ranks still publish ----
run=both
begin both
wait_for 60 has_steps both 5
kill -KILL $up "$(writer_of $up)"
up_ends 137
wait_for 60 nobody
steps=$(wc -l <both/trainer.jsonl)
[ "$(readlink both/checkpoints/latest)" = "$(printf 'step_%08d' "$steps")" ] || fail "the ranks did not publish step $steps"

# ---- everything is killed: the next `up` tidies up ----
begin both
wait_for 60 has_steps both $((steps + 5))
folder=$(folder_of both)
kill -KILL $up "$(writer_of $up)" "$(mpirun_of both)" "$(rank_of both 0)" "$(rank_of both 1)"
up_ends 137
wait_for 60 nobody
[ -n "$(ls "$folder")" ] || fail "there is nothing to tidy up in $folder"
begin both --set "trainer.steps=$(($(wc -l <both/trainer.jsonl) + 20))"
up_ends 0
nothing_left

# ---- hosts ----
run=hosts
begin hosts --set trainer.hosts=localhost:2
wait_for 60 has_steps hosts 5
folder=$(folder_of hosts)
[ -n "$(find "$folder" -name 'vader_segment.*')" ] || fail "the shared memory is not in $folder"
job=$(variable_of "$(rank_of hosts 0)" PMIX_NAMESPACE)
[ -n "$job" ] || fail "the number of the job is not known"
kill -KILL "$(mpirun_of hosts)" "$(rank_of hosts 0)" "$(rank_of hosts 1)"
restarted() { grep -q 'restarting it in' hosts.err; }
wait_for 60 restarted
[ -z "$(find /dev/shm -maxdepth 1 -name "vader_segment.*.$(printf %x "$job").*")" ] || fail "shared memory is left in /dev/shm"
kill -TERM $up
up_ends 143
nothing_left
