#!/usr/bin/env bash
# A run that moves between four, two and one ranks, by signals and by kills, ends with the bits of an
# undisturbed run.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config patch_unet
common=("${rank_settings[@]}" --set trainer.steps=20 --set trainer.checkpoint.every=3)
run=$PLM_TMP/moved
start_packer "$PLM_TMP/quiet"
run_ranks 1 "$PLM_TMP/quiet" "${common[@]}" || fail "the undisturbed run ended with $?"
stop_packer

start_packer "$run"
PLM_STOP_WAIT=1 start_ranks_for 4 "$run" 2 "${common[@]}"
kill -USR1 "$trainer_pid" # mpirun passes it on to all ranks
wait "$trainer_pid" || fail "four ranks ended with $? after SIGUSR1"

start_ranks_for 2 "$run" 7 "${common[@]}"
mapfile -t ranks < <(ranks_of "$trainer_pid")
[ "${#ranks[@]}" -eq 2 ] || fail "mpirun has not two ranks: ${ranks[*]}"
kill -9 "${ranks[1]}"
kill -CONT "${ranks[0]}" 2>/dev/null
wait "$trainer_pid"
[ $? -eq 137 ] || fail "mpirun did not end with 137 after a rank was killed"
no_rank_left "${ranks[@]}"

start_ranks_for 1 "$run" 10 "${common[@]}"
kill_trainer

start_ranks_for 4 "$run" 13 "${common[@]}"
kill -TERM "$(rank_pid "$trainer_pid" 2)" # any rank stops all of them
kill -CONT "$(rank_pid "$trainer_pid" 0)"
wait "$trainer_pid" || fail "four ranks ended with $? after rank 2 got SIGTERM"

run_ranks 2 "$run" "${common[@]}" || fail "the last part ended with $?"
same_run "$PLM_TMP/quiet" "$run" 20
[ -z "$(jq -e 'select(.exact == false)' "$run/trainer.jsonl")" ] || fail "it calls itself inexact"

# six shares on two ranks are added in another order than on one
start_packer "$PLM_TMP/six"
six=(--set trainer.batch_tokens=768 --set trainer.micro_batch_tokens=128 --set trainer.threads=1)
run_ranks 2 "$PLM_TMP/six" "${six[@]}" --set trainer.shares=6 --set trainer.steps=2 || fail "six shares ended with $?"
run_ranks 1 "$PLM_TMP/six" "${six[@]}" --set trainer.steps=4 || fail "one rank after two ended with $?"
grep -q "not bit-exact: ranks was 2, is 1" "$PLM_TMP/trainer.log" || fail "nobody says that the sums changed"
latest=$PLM_TMP/six/checkpoints/latest/trainer.json
[ "$(jq -c '[.exact, .resolved.shares]' "$latest")" = '[false,1]' ] || fail "$(jq -c '[.exact, .resolved.shares]' "$latest")"
