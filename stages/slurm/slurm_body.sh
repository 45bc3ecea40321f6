# shellcheck shell=bash disable=SC2154 # the lines that plm-pipeline writes before these set the variables

say() { echo "$(date '+%F %T') plm: $*"; }

# Slurm sends SIGUSR1 to this script before the time limit, and SIGTERM to every process when it requeues or
# cancels the job. The script passes both on as SIGUSR1, which stops a stage but does not count as its first
# signal. The trainer then finishes its step, publishes a checkpoint and exits with 143.
stopping='' child='' interrupted=''
stop() {
  stopping=$1
  interrupted=yes
  [ -z "$child" ] || kill -USR1 "$child" 2>/dev/null
}
listen() {
  trap 'stop USR1' USR1
  trap 'stop TERM' TERM
}

# await PID: waits until the process ends and returns its exit code. A signal interrupts only `wait`.
await() {
  local code
  child=$1
  [ -z "$stopping" ] || kill -USR1 "$child" 2>/dev/null
  while :; do
    interrupted=''
    wait "$child"
    code=$?
    [ -n "$interrupted" ] || break
  done
  child=''
  return "$code"
}

# keep STAGE ATTEMPTS COMMAND...: runs a step, and starts it again if it fails. Exit codes 2 (a mistake in the
# configuration), 4 (no packer came) and 7 (a cause that stays) are final. So is 5 (a value is not finite) for the
# second time, and the last of ATTEMPTS failures in a row, if each came within ten minutes of its start. 6 (a cause
# that may pass) does not count until supervisor.wait_s is over.
keep() {
  local stage=$1 attempts=$2 failures=0 code started waits_since='' not_finite=''
  shift 2
  while :; do
    started=$SECONDS
    "$@" &
    await $!
    code=$?
    case $code in 0 | 2 | 4 | 7) return "$code" ;; esac
    [ -z "$stopping" ] || return "$code"
    [ "$code $not_finite" != '5 yes' ] || return "$code"
    [ "$code" -ne 5 ] || not_finite=yes
    [ $((SECONDS - started)) -lt 600 ] || failures=0 waits_since=''
    [ "$code" -eq 6 ] || waits_since=''
    waits_since=${waits_since:-$started}
    if [ "$code" -eq 6 ] && [ "$attempts" -gt 1 ] && [ $((SECONDS - waits_since)) -lt "$wait_s" ]; then
      say "the $stage failed for a cause that may pass; its log is in $run/logs"
      sleep 15 &
      await $!
      [ -z "$stopping" ] || return "$code"
      continue
    fi
    failures=$((failures + 1))
    say "the $stage failed with exit code $code; its log is in $run/logs"
    [ "$failures" -lt "$attempts" ] || return "$code"
    sleep 2 &
    await $!
    [ -z "$stopping" ] || return "$code"
  done
}

# finish CODE: stops the stages that still run, and ends the job.
finish() {
  local pid
  for pid in $packers $evaluating; do kill -USR1 "$pid" 2>/dev/null; done
  wait
  exit "$1"
}

listen
say "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)), on $(hostname)"
packers='' evaluating=''
if [ "${#packer[@]}" -gt 0 ]; then
  { listen; keep packer "$packer_attempts" "${packer[@]}"; } &
  packers=$!
fi
if [ "${#evaluator[@]}" -gt 0 ]; then
  { listen; keep evaluator "$evaluator_attempts" "${evaluator[@]}"; } &
  evaluating=$!
fi
keep trainer "$trainer_attempts" "${trainer[@]}"
code=$?

if [ "$code" -eq 2 ] || [ "$code" -eq 4 ] || [ "$code" -eq 7 ] || { [ "$code" -ne 0 ] && [ -z "$stopping" ]; }; then
  say "the trainer ended with exit code $code: see $run/logs/trainer.0.log"
  finish "$code"
fi
if [ "$code" -eq 0 ] && [ -e "$run/DONE" ] && [ -n "$evaluating" ]; then
  await "$evaluating" # it ends when every checkpoint is evaluated
  code=$?
  if [ -z "$stopping" ]; then
    evaluating=''
    [ "$code" -eq 0 ] || say "the evaluator ended with exit code $code: see $run/logs/evaluator.0.log"
  fi
fi
case $stopping in
  USR1) # the time limit is near, or the job will be preempted
    say "this start is over; requeueing the job"
    scontrol requeue "$SLURM_JOB_ID"
    case $? in 0 | 143) exit 0 ;; esac # 143: Slurm began to end this start before it answered
    say "Slurm did not requeue the job: submit it again to continue the run"
    finish 1
    ;;
  TERM) # Slurm has requeued or cancelled the job
    say "stopped by Slurm"
    finish 143
    ;;
esac
if [ -e "$run/DONE" ]; then
  say "the run is complete"
  finish "$code"
fi
say "the trainer was stopped before the run was complete: submit the job again to continue"
finish 143
