#!/usr/bin/env bash
# A mixture reports the same losses and tokens by source, bit for bit, on one rank and on four, and after a resume of two
# ranks on another number of ranks.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus a 300
small_corpus b 200
trainer_config transformer
sed -i 's/^corpus: .*/corpus: [{path: a, weight: 12}, {path: b}]/' pipeline.yaml
common=("${rank_settings[@]}" --set trainer.steps=6 --set trainer.checkpoint.every=3 --set trainer.batch_tokens=1024
  --set trainer.objective=masked_diffusion)

start_packer() { # the run's own corpora
  "$PLM_BIN/plm-packer" -c pipeline.yaml --run "$1" >>packer.log 2>&1 &
  packer_pid=$!
}
for ranks in 1 4; do
  run_undisturbed_ranks "$ranks" "run-$ranks" "${common[@]}"
  same_run run-1 "run-$ranks" 6
done
# b has no chunk in some steps
jq -se 'length == 6 and all(.[]; .loss_by_source.a > 0 and (.tokens_by_source.b == 0) == (.loss_by_source.b == null))
  and (map(.loss_by_source.b == null) | any and (all | not))' run-1/trainer.jsonl >/dev/null ||
  fail "the losses by source: $(jq -c '[.tokens_by_source, .loss_by_source]' run-1/trainer.jsonl)"

start_packer moved
start_ranks_for 2 moved 4 "${common[@]}"
mapfile -t ranks < <(ranks_of "$trainer_pid")
kill -9 "${ranks[1]}"
kill -CONT "${ranks[0]}" 2>/dev/null
wait "$trainer_pid"
no_rank_left "${ranks[@]}"
run_ranks 4 moved "${common[@]}" || fail "the resume ended with $?"
stop_packer
same_run run-1 moved 6
