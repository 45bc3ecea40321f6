#!/usr/bin/env bash
# trainer.compress: bf16: ranks send half as many bytes of gradients, learn as well, resume to the same bits, and
# say that another number of ranks gives other bits.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config unet
common=("${rank_settings[@]:?}" --set trainer.steps=8 --set trainer.checkpoint.every=4)
rounded=("${common[@]}" --set trainer.compress=bf16)

# sent COMPRESS KEY: bytes that --dry-run says
sent() {
  "$PLM_BIN/plm-trainer" -c pipeline.yaml --dry-run --json "${common[@]}" --set trainer.ranks=2 \
    --set "trainer.compress=$1" | jq .sent_in_group
}
# gradients are half of what is sent, so a quarter remains unsent; small tensors add to that
[ "$(($(sent bf16) * 100 / $(sent none)))" -eq 74 ] || fail "bf16 sends $(sent bf16) bytes, none $(sent none)"

for name in none bf16; do
  start_packer "$name"
  run_ranks 2 "$name" "${common[@]}" --set trainer.compress=$name || fail "$name ended with $?"
done
! diff <(exact_metrics none/trainer.jsonl) <(exact_metrics bf16/trainer.jsonl) >/dev/null || fail "nothing is rounded"
[ "$(jq -r .loss none/trainer.jsonl | head -n 1)" = "$(jq -r .loss bf16/trainer.jsonl | head -n 1)" ] ||
  fail "the loss before the first update differs"
paste -d' ' <(jq -r .loss none/trainer.jsonl) <(jq -r .loss bf16/trainer.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-3 * $1) exit 1 }' || fail "the losses differ by more than rounding"

# the same number of ranks continues with the same bits, and another one says that it does not
start_packer parts
stopping_at "write:*/trainer.jsonl#6" mpirun --oversubscribe --bind-to none -np 2 "$PLM_BIN/plm-trainer" \
  -c pipeline.yaml --run parts --set trainer.ranks=2 "${rounded[@]}" >>trainer.log 2>&1 &
trainer_pid=$!
until_lines parts 5
for pid in $(ranks_of "$trainer_pid"); do kill -9 "$pid"; done
wait "$trainer_pid"
run_ranks 2 parts "${rounded[@]}" || fail "the resumed run ended with $?"
same_run bf16 parts 8
[ -z "$(jq -e 'select(.exact == false)' parts/trainer.jsonl)" ] || fail "it calls itself inexact"
run_ranks 1 parts "${rounded[@]}" --set trainer.steps=10 || fail "one rank ended with $?"
grep -q "not bit-exact: ranks was 2, is 1" trainer.log || fail "nobody says that the rounding changed"
