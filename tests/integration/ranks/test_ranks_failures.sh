#!/usr/bin/env bash
# How a gang of ranks ends: with the right exit code, a message that names the rank and its host, an
# intact checkpoint, and no process left.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config transformer
set=(--set trainer.steps=100000 --set trainer.checkpoint.every=2 --set trainer.checkpoint.keep_last=2
  --set trainer.micro_batch_tokens=128 --set trainer.batch_tokens=384 --set trainer.threads=1)
run=$PLM_TMP/run
log=$PLM_TMP/trainer.log
start_packer "$run"

# begin [ARG...]: three ranks that have trained for at least a step; their pids are in $ranks
begin() {
  local before
  before=$(lines_of "$run/trainer.jsonl")
  : >"$log"
  start_ranks 3 "$run" "${set[@]}" "$@"
  until_lines "$run" $((before + 1))
  mapfile -t ranks < <(ranks_of "$trainer_pid")
  [ "${#ranks[@]}" -eq 3 ] || fail "mpirun has not three ranks: ${ranks[*]}"
}

# ended STATUS: waits for the gang, which ends with it, leaves nobody, and whose checkpoint verifies
ended() {
  local status
  wait "$trainer_pid"
  status=$?
  [ "$status" -eq "$1" ] || fail "mpirun ended with $status, not $1"
  no_rank_left "${ranks[@]}"
  plm-pipeline checkpoints --verify "$run" >"$PLM_TMP/verified.log" 2>&1 || fail "a checkpoint does not verify"
}

begin
kill -9 "${ranks[0]}"
ended 137

begin
kill_trainer
no_rank_left "${ranks[@]}"

for rank in 0 1; do
  begin --set trainer.rank_timeout_s=5 --set trainer.checkpoint.every=1
  kill -STOP "${ranks[$rank]}"
  ended 1
  [ "$(grep -c "rank $rank on $(hostname) has been silent for [0-9]* s; it was in step [0-9]* ([a-z ]*)" "$log")" -eq 1 ] ||
    fail "not one rank names the stopped one"
done

begin
kill -USR1 "${ranks[2]}"
ended 0
grep -q 'stopped after step' "$log" || fail "nobody says that the run stopped"

# an error of rank 0 alone: trainer.jsonl cannot be written
begin
prlimit --pid "${ranks[0]}" --fsize=100
ended 1
grep -q 'trainer.jsonl\|checkpoints in a row failed' "$log" || fail "nobody says what failed"
[ "$(grep -c '^plm-trainer: .*File too large' "$log")" -ge 1 ] || fail "the message of rank 0 is missing"

# no packer: rank 0 finds it out, and all end with its status
stop_packer
: >"$log"
run_ranks 2 "$PLM_TMP/alone" "${set[@]}" --set trainer.batch_tokens=512 --set network.wait_packers_s=1
[ $? -eq 4 ] || fail "a gang without packers did not end with 4"
[ "$(grep -c 'no packer served the trainer for [0-9]* s' "$log")" -eq 1 ] || fail "not one message about packers"

# what starts wrong ends with 2 and one message
: >"$log"
run_ranks 3 "$PLM_TMP/wrong" "${set[@]}" --set trainer.ranks=1
[ $? -eq 2 ] || fail "three processes trained a run of one rank"
grep -q 'trainer.ranks is 1, but 3 processes were started' "$log" || fail "nobody says that the numbers differ"
: >"$log"
plm=("$PLM_BIN/plm-trainer" -c pipeline.yaml --run "$PLM_TMP/unequal" "${set[@]}" --set trainer.ranks=2 --set trainer.batch_tokens=512)
mpirun --oversubscribe -np 1 "${plm[@]}" : -np 1 -x PLM_CPU_ISA=portable "${plm[@]}" >>"$log" 2>&1
[ $? -eq 2 ] || fail "unequal ranks trained together"
grep -q "rank 0 on $(hostname) has .*, but rank 1 on $(hostname) has portable" "$log" || fail "nobody says how they differ"
: >"$log"
PLM_MPI_LIBRARY=$PLM_TMP/none.so run_ranks 2 "$PLM_TMP/none" "${set[@]}"
[ $? -eq 2 ] || fail "two ranks trained without the engine"
grep -q 'this build cannot train with several ranks' "$log" || fail "nobody says what is missing"
