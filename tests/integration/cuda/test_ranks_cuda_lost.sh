#!/usr/bin/env bash
# One of two ranks loses its card in the middle of a run, emulated: one message names the rank, its host and the card,
# all ranks exit with 1, every checkpoint is intact, and a resume gives the bits of an undisturbed run.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=2
run_undisturbed_ranks 2 whole "${four_steps[@]:?}"

for rank in 0 1; do
  run=$PLM_TMP/lost-$rank
  : >"$log"
  start_packer "$run"
  PLM_EMULATED_CARD="lost_after=$run/checkpoints/step_00000001 lost_device=$rank" start_ranks 2 "$run" "${four_steps[@]:?}"
  mapfile -t pids < <(for number in 0 1; do started_rank "$trainer_pid" "$number"; done)
  wait "$trainer_pid"
  [ $? -eq 1 ] || fail "the ranks ended otherwise when rank $rank lost its card: $(cat "$log")"
  no_rank_left "${pids[@]}"
  [ "$(grep -c "^plm-trainer: rank $rank on $(hostname): .*device $rank.* failed: unknown error" "$log")" -eq 1 ] ||
    fail "not one message names rank $rank, its host and its card: $(cat "$log")"
  [ "$(grep -c '^plm-trainer: rank ' "$log")" -eq 1 ] || fail "more than one rank says what failed: $(cat "$log")"
  grep -q 'grep Xid.* needs a reset or a restart of the machine' "$log" || fail "no hint: $(cat "$log")"
  same_checkpoints whole "$run"
  [ "$(newest_step "$run")" -ge 1 ] || fail "no checkpoint"
  run_ranks 2 "$run" "${four_steps[@]:?}" || fail "the resume ended with $?"
  stop_packer
  same_run "$PLM_TMP/whole" "$run" 4
done
