#!/usr/bin/env bash
# A trainer that is not told its corpus takes that of its first packer. The run keeps it in CORPUS, also if the trainer is
# killed before its next checkpoint: from then on neither the trainer nor the evaluator takes another one.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
small_corpus other 300
trainer_config transformer
log=$PLM_TMP/trainer.log
run=$PLM_TMP/run
pinned=$(jq -r .fingerprint corpus/corpus.json)
another=$(jq -r .fingerprint other/corpus.json)
[ "$pinned" != "$another" ] || fail "both corpora are the same"

# start_other: a packer of the other corpus
# shellcheck disable=SC2034 # packer_pid is for stop_packer
start_other() {
  "$PLM_BIN/plm-packer" -c "$PLM_TMP/pipeline.yaml" --corpus "$PLM_TMP/other" --run "$run" >>"$PLM_TMP/packer.log" 2>&1 &
  packer_pid=$!
}

# ---- killed after three steps: the only checkpoint is that of step 0, which was saved before the first packer came ----
start_trainer_until 'write:*/trainer.jsonl#4' "$run"
wait_for 60 test -e "$run/checkpoints/latest" || fail "the checkpoint of step 0 is not published"
start_packer "$run"
until_stopped "$trainer_pid" || fail "the trainer ended before 3 lines"
kill_trainer
stop_packer
[ "$(ls "$run/checkpoints")" = "$(printf 'latest\nstep_00000000')" ] || fail "checkpoints: $(ls "$run/checkpoints")"
[ "$(cat "$run/CORPUS")" = "{\"fingerprint\":\"$pinned\",\"root\":\"$pinned\"}" ] || fail "CORPUS: $(cat "$run/CORPUS")"
[ "$(grep -c "the run trains on corpus $pinned, which its first packer serves\$" "$log")" -eq 1 ] ||
  fail "the corpus is not named once: $(grep "trains on corpus" "$log")"

# ---- another corpus is refused, whoever names it ----
run_trainer "$run" --fingerprint "$another"
status=$?
[ "$status" -eq 2 ] || fail "another --fingerprint: exit $status"
grep -q "the run was trained on corpus $pinned, but this corpus is $another\$" "$log" || fail "the corpora are not named"
grep -q 'use the corpus that the run began with, or start a new run with trainer.init_from' "$log" || fail "no hint"
start_other
run_trainer "$run" --set network.wait_packers_s=2
status=$?
[ "$status" -eq 4 ] || fail "a packer of another corpus: exit $status"
grep -q "another corpus than the run's: its fingerprint is $another (the fingerprint of the run's corpus: $pinned)" "$log" ||
  fail "the trainer did not refuse the packer"
"$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set network.wait_packers_s=2 \
  >"$PLM_TMP/evaluator.log" 2>&1
status=$?
[ "$status" -eq 4 ] || fail "the evaluator with a packer of another corpus: exit $status"
grep -q "the fingerprint of the run's corpus: $pinned)" "$PLM_TMP/evaluator.log" || fail "the evaluator did not refuse the packer"
[ ! -s "$run/evaluator.jsonl" ] || fail "the evaluator evaluated on another corpus"
stop_packer
[ "$(cat "$run/CORPUS")" = "{\"fingerprint\":\"$pinned\",\"root\":\"$pinned\"}" ] || fail "CORPUS has changed: $(cat "$run/CORPUS")"

# ---- the first corpus continues the run, and the checkpoints then name it too ----
start_packer "$run"
run_trainer "$run" --set trainer.steps=10 --fingerprint "$pinned" || fail "exit $? with the run's corpus"
stop_packer
jq -e --arg pinned "$pinned" '.cursor.fingerprint == $pinned' "$run/checkpoints/step_00000010/trainer.json" >/dev/null ||
  fail "the checkpoint does not name the corpus"

# ---- a checkpoint's word is enough, and CORPUS is written again. What a killed trainer has left is removed ----
rm "$run/CORPUS"
jq '.feed = "tcp://127.0.0.1:9" | .announcements = .feed' "$run/endpoints.json" >endpoints.json
mv endpoints.json "$run/endpoints.json"
echo '[]' >"$run/peers.trainer.json"
run_trainer "$run" --set trainer.steps=10 || fail "exit $? of a complete run"
[ "$(cat "$run/CORPUS")" = "{\"fingerprint\":\"$pinned\"}" ] || fail "CORPUS is not written again"

# ---- a new run in the same folder chooses anew ----
"$PLM_BIN/plm-pipeline" up "$PLM_TMP/pipeline.yaml" --run "$run" --resume never --set corpus=other --set trainer.steps=2 \
  trainer packer >"$PLM_TMP/up.log" 2>&1 </dev/null || fail "a new run with another corpus: $?"
[ "$(cat "$run/previous-1/CORPUS")" = "{\"fingerprint\":\"$pinned\"}" ] || fail "CORPUS was not moved aside"
[ "$(cat "$run/CORPUS")" = "{\"fingerprint\":\"$another\",\"root\":\"$another\"}" ] || fail "CORPUS of the new run: $(cat "$run/CORPUS")"
jq -e '(has("feed") or has("announcements")) | not' "$run/endpoints.json" >/dev/null ||
  fail "endpoints of a complete run: $(cat "$run/endpoints.json")"
[ ! -e "$run/peers.trainer.json" ] || fail "peers of a complete run are left"
