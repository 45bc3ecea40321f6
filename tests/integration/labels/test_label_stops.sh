#!/usr/bin/env bash
# A trainer that waits for a packer, which knows the labels, stops at once and in order: before its first step, after a
# resume, and with several ranks. The run then ends with the bits of an undisturbed one.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
{
  echo name,sequence,tm
  small_fasta plain.fasta 120
  awk '/^>/ {name = substr($1, 2); next} {printf "%s,%s,%.2f\n", name, $0, length($0) / 3}' plain.fasta
} >table.csv
plm-pipeline ingest table.csv --corpus corpus --labels tm:number --split train=0.9,valid=0.1 >/dev/null 2>&1 || fail "ingest"
trainer_config transformer
settings=("${rank_settings[@]}" --set trainer.steps=6 --set trainer.checkpoint.every=2 --set trainer.objective=regression
  --set trainer.labels=tm)
run_undisturbed quiet "${settings[@]}"

# sign RUN: when it last said that it waits for packers, in ms
sign() { jq -e 'select(.doing == "waiting for packers" and .waits).written_ms' "$1/pulse.trainer.json" 2>/dev/null; }
says_so_after() { [ "$(sign "$1" || echo 0)" -gt "$2" ]; }

# waits_and_stops RUN SIGNAL CODE: starts a trainer without a packer, which ends with CODE after SIGNAL
waits_and_stops() {
  rm -f trainer.log
  start_trainer "$1" "${settings[@]}"
  wait_for 60 grep -q 'training on cpu' trainer.log
  # it gives one sign of life after the other, so that no watchdog ends it before network.wait_packers_s
  wait_for 60 says_so_after "$1" 0
  wait_for 60 says_so_after "$1" "$(sign "$1")"
  kill -"$2" "$trainer_pid"
  wait_for 60 eval "! kill -0 $trainer_pid"
  wait "$trainer_pid"
  local code=$?
  [ $code -eq "$3" ] || fail "the trainer ended with $code after SIG$2, not with $3: $(cat trainer.log)"
  says trainer.log 'stopped while it waited for a packer; nothing was lost'
}
waits_and_stops moved TERM 143
waits_and_stops moved INT 130
start_packer moved
start_trainer_for moved 3 "${settings[@]}"
kill_trainer
stop_packer
waits_and_stops moved TERM 143
[ "$(newest_step moved)" -eq 2 ] || fail "the newest checkpoint is of step $(newest_step moved)"

# two ranks; mpirun passes the signal on to both
rm -f trainer.log
start_ranks 2 moved "${settings[@]}"
wait_for 60 grep -q 'training on cpu' trainer.log
mapfile -t ranks < <(ranks_of "$trainer_pid")
kill -USR1 "$trainer_pid"
wait "$trainer_pid" || fail "two ranks ended with $? after SIGUSR1: $(cat trainer.log)"
no_rank_left "${ranks[@]}"
says trainer.log 'stopped while it waited for a packer; nothing was lost'

start_packer moved
run_trainer moved "${settings[@]}" || fail "the last part ended with $?"
stop_packer
same_run quiet moved 6
