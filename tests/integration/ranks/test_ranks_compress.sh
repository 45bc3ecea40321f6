#!/usr/bin/env bash
# trainer.compress: bf16: what ranks send of gradients is rounded, and they learn as well. How many bytes they send is in
# tests/trainer/ranks/test_buckets.c, and the rounded sums themselves in test_rank_sums.sh.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config unet
common=("${rank_settings[@]:?}" --set trainer.steps=8)

for name in none bf16; do
  start_packer "$name"
  run_ranks 2 "$name" "${common[@]}" --set trainer.compress=$name || fail "$name ended with $?"
done
! diff <(exact_metrics none/trainer.jsonl) <(exact_metrics bf16/trainer.jsonl) >/dev/null || fail "nothing is rounded"
[ "$(jq -r .loss none/trainer.jsonl | head -n 1)" = "$(jq -r .loss bf16/trainer.jsonl | head -n 1)" ] ||
  fail "the loss before the first update differs"
paste -d' ' <(jq -r .loss none/trainer.jsonl) <(jq -r .loss bf16/trainer.jsonl) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-3 * $1) exit 1 }' || fail "the losses differ by more than rounding"
