#!/usr/bin/env bash
# The supervisor with small real processes as stages. A copy of plm-pipeline finds the programs of the
# stages in its own folder; here they are scripts, and variables choose what they do. Checks the order
# of the shutdown, exit codes, restarts, the root cause, the control socket, and that no process is
# left behind.
. "$PLM_ROOT/tests/support/shell/lib.sh"
set +e # it looks at exit codes itself
chmod 700 . # otherwise the control sockets would not lie here
export XDG_RUNTIME_DIR=$PWD
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin/
pipeline=$PWD/bin/plm-pipeline

until_true() { wait_for 20 "$@"; }

cat >bin/stage <<'S'
#!/usr/bin/env bash
# Every stage says hello, reports that it is ready, and writes a line to $run/events at start and stop.
while [ $# -gt 0 ]; do
  case $1 in
    --run) run=$2 ;;
    --dry-run) echo '{"total":5000000,"parameter_count":1000}' && exit ;;
  esac
  shift
done
stage=${0##*plm-}
event() { echo "$stage.$PLM_INSTANCE $*" >>"$run/events"; }
stopped() {
  event stopped
  exit 0
}
until_read() { # REGEX FILE: at most two minutes
  local until=$((SECONDS + 120))
  while [ "$SECONDS" -lt "$until" ]; do grep -q "$1" "$2" && break; sleep 0.05; done
}
trap stopped TERM
echo "$stage says hello"
[ "$stage" != trainer ] || echo "plm-trainer: trains"
event started
echo >&"$PLM_READY_FD"
eval "exec $PLM_READY_FD>&-"
S
for stage in trainer evaluator packer; do
  { cat bin/stage; echo "eval \"\${${stage^^}:-}\""; } >bin/plm-$stage
  chmod +x bin/plm-$stage
done
cat >pipeline.yaml <<'Y'
corpus: null
network: {feed: 'ipc://f', evaluation_feed: 'ipc://e', announcements: 'ipc://a'}
trainer: {stop_timeout_s: 120}
Y

# What the stages do, as shell text.
forever='while :; do sleep 0.05; done'
train='until_read packer.0 "$run/events"; sleep 0.3; echo "{\"step\":3,\"identity\":\"99aa06d3014798d86001c324468d497f\"}" >"$run/DONE"'
judge='while [ ! -e "$run/DONE" ]; do sleep 0.05; done; sleep 0.2; event evaluated'
export TRAINER=$train EVALUATOR=$judge PACKER=$forever

up() { # up RUN [ARGUMENT...]: in the foreground, output in RUN.out
  local run=$1
  shift
  "$pipeline" up --run "$run" "$@" >"$run.out" 2>&1
}
begin() { # the same in the background; $supervisor is its process
  local run=$1
  shift
  "$pipeline" up --run "$run" "$@" >"$run.out" 2>&1 &
  supervisor=$!
}
nobody_left() {
  local left
  left=$(supervised "XDG_RUNTIME_DIR=$PWD")
  [ -z "$left" ] || fail "$1: processes are left: $left"
}

# five deaths in ten minutes: this takes a while, so it runs beside the rest
export TRAINER='kill -KILL $$'
mkdir -m 700 dying-runtime
XDG_RUNTIME_DIR=$PWD/dying-runtime begin dying
dying=$supervisor
export TRAINER=$train

# ---- a run that completes ----
up complete
[ $? -eq 0 ] || fail "a complete run: $(cat complete.out)"
grep -q 'trainer.0 *| trainer says hello' complete.out || fail "no prefixed line"
grep -q '^trainer.0 *| trains$' complete.out || fail "the name of the program is repeated"
grep -q 'complete at step 3' complete.out || fail "complete at step 3 is not said"
grep -q evaluated complete/events || fail "the evaluator was not waited for"
[ "$(tail -n 1 complete/events)" = 'packer.0 stopped' ] || fail "packers do not stop last"
grep -qx 'packer says hello' complete/logs/packer.0.log || fail "no log of the packer"
[ "$("$pipeline" logs --run complete trainer | head -n 1)" = 'trainer says hello' ] || fail "logs trainer"
"$pipeline" logs --run complete -f --tail 1 | grep 'packer.0 *| packer says' >/dev/null ||
  fail "logs -f after the run"
"$pipeline" config complete/pipeline.yaml >/dev/null || fail "the run's pipeline.yaml"
"$pipeline" wait --run complete || fail "wait on a complete run"
nobody_left complete

# ---- Ctrl-C: the trainer first, packers last, 130 ----
export TRAINER=$forever EVALUATOR=$forever
begin interrupted --scale packer=2
until_true "$pipeline" wait --ready --run interrupted --timeout 1
"$pipeline" ps --run interrupted --json >ps.json
[ "$(jq -c '[.[] | .stage + "." + (.instance | tostring)]' ps.json)" = \
  '["trainer.0","evaluator.0","packer.0","packer.1"]' ] || fail "ps: $(cat ps.json)"
jq -e 'all(.[]; .ready and .state == "ready" and .restarts == 0 and .pid > 1 and .age_s >= 0
  and (.node | length) > 0)' ps.json >/dev/null || fail "ps --json: $(cat ps.json)"
[ "$(stat -c %a plm-*.sock)" = 600 ] || fail "the control socket is open to others"
packer=$(jq '.[] | select(.stage == "packer" and .instance == 0).pid' ps.json)
[ "$(ps -o ni= -p "$packer" | tr -d ' ')" -ge 10 ] || fail "a packer is not at nice 10"
"$pipeline" up --run interrupted 2>second.out
[ $? -eq 1 ] || fail "a second supervisor starts"
grep -q 'is process' second.out || fail "who has the run is not said: $(cat second.out)"
# a removed supervisor.lock lets no second supervisor in, and the first one creates it again
suspend "$supervisor"
rm interrupted/supervisor.lock
"$pipeline" up --run interrupted --resume never 2>second.out
[ $? -eq 1 ] || fail "a second supervisor starts without supervisor.lock"
grep -q 'although its supervisor.lock was removed' second.out || fail "a removed lock: $(cat second.out)"
[ ! -e interrupted/previous-1 ] || fail "a second supervisor moved the run"
rm interrupted/supervisor.lock
kill -CONT "$supervisor"
until_true jq -e ".pid == $supervisor" interrupted/supervisor.lock
kill -INT "$supervisor"
wait "$supervisor"
[ $? -eq 130 ] || fail "Ctrl-C does not end with 130"
grep -q 'stopped before the first checkpoint' interrupted.out || fail "the end is not said"
[ "$(grep stopped interrupted/events | cut -d. -f1 | uniq | tr '\n' ' ')" = \
  'trainer evaluator packer ' ] || fail "order of the stop: $(cat interrupted/events)"
nobody_left interrupted

# ---- Slurm's sequence: SIGUSR1 before the time limit, then SIGTERM, is one stop and not two ----
begin batch
until_true "$pipeline" wait --ready --run batch --timeout 1
suspend "$supervisor"
kill -USR1 "$supervisor"
kill -TERM "$supervisor"
kill -CONT "$supervisor"
wait "$supervisor"
[ $? -eq 143 ] || fail "SIGUSR1 and SIGTERM do not end with 143"
! grep -q 'killing all stages' batch.out || fail "SIGTERM after SIGUSR1 kills: $(cat batch.out)"
[ "$(grep -c stopped batch/events)" = 3 ] || fail "not all stages stopped in order: $(cat batch/events)"
nobody_left batch

# ---- with few descriptors, signals still arrive ----
(
  exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- >few.out 2>&1
  ulimit -n 20
  exec "$pipeline" up --run few
) &
supervisor=$!
until_true grep -q "\"pid\":$supervisor," few/supervisor.lock
sleep 0.5 # into its loop
kill -TERM "$supervisor"
gone() { ! kill -0 "$supervisor" 2>/dev/null; }
until_true gone
wait "$supervisor"
[ $? -eq 143 ] || fail "SIGTERM with few descriptors does not end with 143: $(tail -n 5 few.out)"
! grep -q 'cannot poll' few.out || fail "with few descriptors: $(tail -n 3 few.out)"
nobody_left few

# ---- in the background, with the output in a pipe: the pipe ends when the command does ----
piped() { timeout 300 "$BASH" -c '"$@" 2>&1 | cat' piped "$pipeline" up --run piped "$@"; }
piped -d >piped.out || fail "up -d in a pipe hangs: $(cat piped.out)"
grep -q 'running in .*piped' piped.out || fail "up -d in a pipe: $(cat piped.out)"
until_true "$pipeline" wait --ready --run piped --timeout 1
piped -d >piped.out
grep -q 'is process .* on ' piped.out || fail "the error of a second up -d is not printed: $(cat piped.out)"
grep -q 'stop it first' piped.out || fail "the hint of a second up -d is not printed: $(cat piped.out)"
"$pipeline" down --run piped 2>/dev/null || fail "down of a piped run"
nobody_left piped
timeout 60 "$BASH" -c '"$@" 7>&1 >/dev/null 2>&1 | cat' piped "$pipeline" up -d --run piped ||
  fail "up -d hangs with another descriptor in a pipe"
until_true "$pipeline" wait --ready --run piped --timeout 1
"$pipeline" down --run piped 2>/dev/null || fail "down of a run with another descriptor in a pipe"
nobody_left piped

# ---- in the background: a killed packer comes back; scale, restart; down ends with 143 ----
"$pipeline" up --wait --run behind 2>behind.out || fail "up --wait: $(cat behind.out)"
pid_of() { "$pipeline" ps --run behind --json | jq ".[] | select(.stage == \"$1\" and .instance == $2).pid"; }
field_is() { [ "$("$pipeline" ps --run behind --json | jq -r ".[] | select(.stage == \"$1\" and .instance == $2).$3")" = "$4" ]; }
kill -KILL "$(pid_of packer 0)"
until_true field_is packer 0 restarts 1
until_true field_is packer 0 ready true
"$pipeline" scale packer=3 --run behind || fail "scale"
until_true field_is packer 2 ready true
"$pipeline" scale packer=1 --run behind || fail "scale down"
three_are_left() { [ "$("$pipeline" ps --run behind --json | jq length)" = 3 ]; }
until_true three_are_left
before=$(pid_of evaluator 0)
"$pipeline" restart evaluator --run behind || fail "restart"
until_true field_is evaluator 0 restarts 1
[ "$(pid_of evaluator 0)" != "$before" ] || fail "the evaluator was not started again"
"$pipeline" wait --run behind --timeout 1 2>/dev/null
[ $? -eq 4 ] || fail "wait --timeout does not end with 4"
"$pipeline" wait --run behind 2>/dev/null &
waiting=$!
"$pipeline" ps --watch --run behind >watch.out 2>&1 &
watching=$!
until_true grep -q '^trainer.0' watch.out
"$pipeline" down --run behind || fail "down"
wait "$watching" || fail "ps --watch does not end with the run: $(cat watch.out)"
grep -q '^trainer.0' watch.out || fail "ps --watch: $(cat watch.out)"
wait "$waiting"
[ $? -eq 143 ] || fail "wait does not end with the run's 143"
"$pipeline" ps --run behind 2>/dev/null
[ $? -eq 3 ] || fail "ps of a stopped run does not end with 3"
grep -q 'was killed by signal 9' behind/logs/supervisor.log || fail "the log behind"
nobody_left behind

# ---- a stage that exits with 2 or 4 is not restarted, and `up` exits with the same code ----
for code in 2 4; do
  TRAINER="echo before it fails; exit $code" up failed$code
  [ $? -eq "$code" ] || fail "a trainer's exit $code is not up's"
  grep -q "failed: trainer.0 exited with $code" failed$code.out || fail "no root cause $code"
  sed -n '/failed: trainer.0/,/log: /p' failed$code.out >told # its last lines and its log, and nothing of a full disk
  diff <(printf '  | %s\n' 'trainer says hello' 'plm-trainer: trains' 'before it fails' && echo "  log: $PWD/failed$code/logs/trainer.0.log") <(tail -n +2 told) ||
    fail "exit $code is told otherwise"
  [ "$(grep -c 'trainer.0 started' failed$code/events)" = 1 ] || fail "exit $code was retried"
done
# afterwards `ps` and `runs` say so, until the next start
"$pipeline" ps --run failed4 >ps.out 2>&1
[ $? -eq 3 ] || fail "ps of a failed run: $(cat ps.out)"
grep -q 'It failed at 2.* with exit code 4: trainer.0 exited with 4' ps.out || fail "ps of a failed run: $(cat ps.out)"
grep -q "continue with .plm-pipeline up $PWD/failed4/pipeline.yaml" ps.out || fail "how to continue: $(cat ps.out)"
TRAINER=$train EVALUATOR=$judge up failed4 || fail "a failed run does not continue: $(cat failed4.out)"
[ ! -e failed4/FAILED ] || fail "a run that is complete has failed"
# a stage that has failed for good says why, while the others go on
TRAINER=$forever EVALUATOR='echo "plm-evaluator: no such set"; exit 2' begin half
half_fatal() { "$pipeline" ps --run half >ps.out && grep -q '^evaluator.0 .* - *fatal' ps.out; }
until_true half_fatal
grep -q '^  start it again with: plm-pipeline restart evaluator.0$' ps.out || fail "how to go on: $(cat ps.out)"
grep -q '^  2.*: exited with 2: no such set$' ps.out || fail "ps: $(cat ps.out)"
grep -q 'plm-pipeline restart evaluator.0' ps.out || fail "ps: $(cat ps.out)"
"$pipeline" down --run half
wait "$supervisor"
# a trainer that ends without DONE is restarted
TRAINER='[ -e "$run/again" ] || { touch "$run/again"; exit 0; }; '$train EVALUATOR=$judge up again
[ $? -eq 0 ] || fail "a trainer that ended early: $(cat again.out)"
grep -q 'ended before the run was complete; restarting it' again.out || fail "it does not say so"
# packers that fail for good do not fail a run that completes; the trainer is told
TRAINER='until_read "\"packers\":.*\"fatal\"" "$run/endpoints.json"
grep fatal "$run/endpoints.json" >"$run/told"; '$train EVALUATOR=$judge PACKER='exit 2' up lonely
[ $? -eq 0 ] || fail "packers given up: $(cat lonely.out)"
[ -s lonely/told ] || fail "the trainer is not told"
jq -e 'has("packers") | not' lonely/endpoints.json >/dev/null || fail "it is still said after the end"
nobody_left failed

# ---- stubborn stages and what they leave behind ----
TRAINER='trap "" TERM; '$forever begin stubborn --set trainer.stop_timeout_s=0
until_true "$pipeline" wait --ready --run stubborn --timeout 1
kill -TERM "$supervisor"
until_true grep -q 'stopping: ' stubborn.out
kill -TERM "$supervisor" # a second signal kills
wait "$supervisor"
[ $? -eq 143 ] || fail "SIGTERM does not end with 143"
nobody_left stubborn
# the children of a stage belong to it, whatever sessions they moved to
TRAINER='setsid sleep 1000 & setsid bash -c "setsid sleep 1000 & wait" & sleep 0.2; '$train \
  EVALUATOR=$judge up orphans
[ $? -eq 0 ] || fail "orphans: $(cat orphans.out)"
nobody_left orphans
# when the supervisor is killed, its stages end by themselves, and the run can be started again
"$pipeline" up -d --run beheaded 2>/dev/null || fail "up -d"
until_true "$pipeline" wait --ready --run beheaded --timeout 1
kill -KILL "$(jq .pid beheaded/supervisor.lock)"
until_true grep -q 'trainer.0 stopped' beheaded/events
until_true grep -q 'packer.0 stopped' beheaded/events
nobody() { [ -z "$(supervised "XDG_RUNTIME_DIR=$PWD")" ]; }
until_true nobody
TRAINER=$train EVALUATOR=$judge up beheaded || fail "a run whose supervisor was killed"

# ---- chosen stages, resume never ----
begin part packer --set packer.restart=no
until_true "$pipeline" wait --ready --run part --timeout 1
[ "$("$pipeline" ps --run part --json | jq -c '[.[].stage]')" = '["packer"]' ] || fail "up packer"
"$pipeline" down --run part
wait "$supervisor"
[ $? -eq 143 ] || fail "down of a run with only packers"
TRAINER=$train EVALUATOR=$judge up complete --resume never || fail "--resume never"
[ -e complete/previous-1/DONE ] && [ -e complete/previous-1/pipeline.yaml ] ||
  fail "nothing was moved aside"

# ---- an endpoint that is in use is named, with its owner ----
"$pipeline" up -d --run first 2>/dev/null || fail "up -d"
socket=$(echo "$PWD"/plm-*.sock) # its control socket is one that somebody listens on
up second --set "network.feed=ipc://$socket"
[ $? -eq 1 ] || fail "a taken endpoint: $(cat second.out)"
grep -q "network.feed: ipc://$socket is in use by pid .* (plm-pipeline)" second.out ||
  fail "who has the endpoint is not said: $(cat second.out)"
"$pipeline" down --run first 2>/dev/null || fail "down"

wait "$dying"
[ $? -eq 1 ] || fail "five deaths do not end with 1: $(cat dying.out)"
grep -q 'the fifth time in ten minutes: giving up' dying.out || fail "five deaths: $(cat dying.out)"
[ "$(grep -c 'trainer.0 started' dying/events)" = 5 ] || fail "five starts: $(cat dying/events)"
grep -q 'failed: trainer.0 was killed by signal 9' dying.out || fail "no root cause of five deaths"
nobody_left "the end"
