#!/usr/bin/env bash
# `up` with several ranks: mpirun and the ranks are started, watched and stopped as one stage. Whatever is
# killed, the run ends with the bits of an undisturbed one, and neither processes nor files are left. Ranks that are stopped,
# or get a signal: tests/integration/ranks/test_ranks_failures.sh. Commands and decisions: tests/stages/supervisor/.
# shellcheck disable=SC2154 # up, stopped: gang.sh sets them
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/gang.sh"
small_corpus corpus
small_config pipeline.yaml unet
sed -i 's/  steps: 12/  ranks: 2\n  steps: 30/; s/every: 4/every: 10/' pipeline.yaml

# ---- what has to be installed is said at once ----
mkdir few
for program in $(command -v bash env); do ln -s "$program" few; done
PATH=$PWD/few expect 2 "$PLM_BIN/plm-pipeline" up pipeline.yaml
says err 'mpirun is not on PATH'
says err 'Debian: openmpi-bin'
[ ! -e run ] || fail "a run folder was made"

# ---- an undisturbed run ----
run=whole
begin whole --set trainer.hosts=localhost:2
up_ends 0
says whole.err 'trainer.0 is ready'
says whole.err '2 ranks, 2 of them on this host'
[ -e whole/DONE ] || fail "the run is not complete"
nothing_left

# ---- a stop signal to `up`, also before the ranks are ready; then it continues ----
run=stopped
rm -rf once # it goes no further than its first step
PLM_STOP_WAIT=1 PLM_STOP_RANK=0 PLM_STOP_HERE='write:*/trainer.jsonl#1' begin stopped
sleep 0.2 # a moment in the start of mpirun, whichever
kill -TERM $up
up_ends 143
nothing_left
begin_waiting 10 stopped
wait_for 60 plm-pipeline wait --ready --run stopped --timeout 1
folder=$(folder_of stopped)
[ -d "$folder" ] || fail "mpirun has no folder of its own: $folder"
plm-pipeline ps --run stopped >ps.out
says ps.out '^trainer.0 .* ready .* 2 ranks$'
plm-pipeline ps --run stopped --json | jq -e '.[] | select(.stage == "trainer").ranks == 2' >/dev/null ||
  fail "ps --json does not tell the ranks"
# listens PID: the addresses on which it listens for TCP, as in /proc/net
listens() {
  local sockets
  sockets=$(readlink "/proc/$1/fd/"* | sed -n 's/^socket:\[\(.*\)\]$/\1/p')
  awk -v sockets="$sockets" 'BEGIN { split(sockets, list); for (i in list) ours[list[i]] }
    $4 == "0A" && $10 in ours { sub(/:.*/, "", $2); print $2 }' "/proc/$1/net/tcp" "/proc/$1/net/tcp6"
}
[ -z "$(listens "$(rank_of stopped 1)")" ] || fail "rank 1 listens on $(listens "$(rank_of stopped 1)")"
[ "$(listens "$(rank_of stopped 0)" | sort -u)" = 0100007F ] ||
  fail "rank 0 listens on $(listens "$(rank_of stopped 0)")"
kill -TERM $up
up_ends 143
says stopped.err 'stopped; `plm-pipeline up --run stopped` will continue from step'
! grep -q 'while it was stopping' stopped.err || fail "the stop was no clean one: $(cat stopped.err)"
nothing_left

# ---- `restart` stops all ranks and starts them again ----
begin_waiting 10 stopped
wait_for 60 plm-pipeline wait --ready --run stopped --timeout 1
plm-pipeline restart trainer --run stopped
up_ends 0
same_as_whole stopped
nothing_left

# ---- kills: a rank, and `up` itself; mpirun is killed below ----
export OMPI_MCA_odls_base_sigkill_timeout=0 # mpirun waits this long, twice, before it kills the other ranks
run=killed
begin_stopping 12 killed
kill -KILL "$(rank_of killed 1)"
go_on
up_ends 0
says killed.err 'trainer.0 lost a rank to signal 9 .*; restarting it in'
same_as_whole killed
nothing_left
run=beheaded
begin_waiting 10 beheaded
kill -KILL $up
up_ends 137
wait_for 60 nobody
[ -n "$(find beheaded/checkpoints -name 'step_0*[1-9]*')" ] || fail "the ranks did not publish: $(tail -n 20 beheaded/logs/trainer.0.log)"
# killed while mpirun has not started the ranks yet, to which it would pass the signal
rm -rf once
PLM_STOP_WAIT=1 PLM_STOP_RANK=0 PLM_STOP_HERE='write:*/trainer.jsonl#11' begin beheaded
mpirun_runs() { pgrep -P $up -x mpirun; }
stop_mpirun() { mpirun=$(mpirun_runs) && kill -STOP "$mpirun"; }
wait_for 60 mpirun_runs
sleep 0.03
wait_for 60 stop_mpirun
kill -KILL $up
up_ends 137
kill -CONT "$mpirun"
wait_for 60 nobody
begin beheaded
up_ends 0
same_as_whole beheaded
nothing_left

# ---- mpirun hangs when rank 0 is gone ----
run=hung
export PLM_MPIRUN_GRACE_S=2
begin_stopping 12 hung
wait_for 60 plm-pipeline wait --ready --run hung --timeout 1
suspend "$(mpirun_of hung)"
kill -KILL "$stopped"
up_ends 0
says hung.err 'trainer.0: mpirun still runs 2 s after rank 0 has ended; killing it'
says hung.err 'trainer.0 lost rank 0, and mpirun did not notice; restarting it in'
same_as_whole hung
nothing_left
unset PLM_MPIRUN_GRACE_S OMPI_MCA_odls_base_sigkill_timeout

# ---- ranks on another host: its stand-in is a new environment on this one ----
cat >agent <<'S'
#!/bin/sh
# ssh's stand-in: HOST COMMAND...
echo "$1" >>"$PLM_TMP/agent.log"
shift
exec env -i PATH="$PATH" HOME="$PLM_TMP" TMPDIR=/tmp OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  sh -c "$*"
S
chmod +x agent
run=apart
export OMPI_MCA_plm_rsh_agent=$PWD/agent
PLM_FOO=bar begin_waiting 10 apart --set trainer.hosts=localhost:1,plm-other:1
[ "$(cat agent.log)" = plm-other ] || fail "ssh was not asked for the other host: $(cat agent.log)"
other=$(pgrep -f "plm-trainer.*$PLM_TMP/apart" | while read -r process; do
  [ "$(variable_of "$process" OMPI_COMM_WORLD_RANK)" != 1 ] || echo "$process"
done)
tr '\0' '\n' <"/proc/$other/environ" >environment
says environment '^PLM_FOO=bar$'
says environment '^PLM_LOG_TIMES=1$'
! grep -qE '^PLM_(SUPERVISED|LOG_FILE|READY_FD|INSTANCE)=' environment || fail "passed on: $(grep PLM_ environment)"
kill -TERM $up
up_ends 143
! grep -q 'while it was stopping' apart.err || fail "the stop was no clean one: $(cat apart.err)"
nothing_left
begin_stopping 10 apart --set trainer.hosts=localhost:1,plm-other:1
kill -KILL "$(mpirun_of apart)" # then the other host has nobody who tells it to stop
go_on
up_ends 0
says apart.err 'trainer.0 was killed by signal 9 .*; restarting it in'
same_as_whole apart
! pgrep -f "plm-trainer.*$PLM_TMP/apart" >/dev/null || fail "a rank of the other host is left"
printf '#!/bin/sh\necho "ssh: no route to $1" >&2\nexit 255\n' >agent
run=unreachable
begin unreachable --set trainer.hosts=localhost:1,plm-other:1 --set trainer.restart=no
up_ends 1
says unreachable.err '^ *[|] ssh: no route to plm-other'
unset OMPI_MCA_plm_rsh_agent
nothing_left

# ---- exit codes and root causes ----
expect 4 plm-pipeline up pipeline.yaml trainer --run starved --set network.wait_packers_s=0.2
says err 'failed: trainer.0 exited with 4'
[ "$(grep -c 'trainer.0 is ready' err)" -le 1 ] || fail "exit 4 was retried: $(cat err)"
! sed -n '/failed: trainer.0/,$p' err | matches 'mpirun detected' || fail "the last error is that of mpirun: $(cat err)"
nothing_left

# ---- a second signal kills ----
run=twice
begin twice --set trainer.steps=100000
wait_for 60 has_steps twice 5
kill -STOP "$(rank_of twice 1)"
kill -TERM $up
wait_for 60 grep -q 'stopping: ' twice.err
kill -TERM $up
up_ends 143
nothing_left
