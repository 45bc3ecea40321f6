#!/usr/bin/env bash
# `make learn` in its quickest form: every architecture and optimizer at nearly equal compute, and the sweep; a second
# call repeats no training.
. "$PLM_ROOT/tests/support/shell/lib.sh"
learn() {
  expect 0 python3 -B "$PLM_ROOT/tests/bench/bench_learn.py" --build "$PLM_BUILD" --quick --results results.jsonl
}

learn
[ "$(wc -l <results.jsonl)" -eq 14 ] || fail "$(wc -l <results.jsonl) trainings"
jq -se '[.[] | .curve | length] | all(. == 5)' results.jsonl >/dev/null || fail "a curve does not have five points"
jq -se '[.[] | .curve[4][1] < .curve[0][1]] | all' results.jsonl >/dev/null || fail "a model has not learnt"
# the seed matters, and the same seed gives the same numbers
jq -se 'map(select(.trial.optimizer == "muon" and .trial.architecture == "unet") | .curve[4][1]) | unique | length == 2' \
  results.jsonl >/dev/null || fail "two seeds give one loss"
for name in patch_unet unet transformer; do
  for optimizer in muon adamw; do says out "^\| \`$name\` \| $optimizer \| [0-9.]+ \| [0-9.]+ \| [0-9,]+ \|"; done
done
says out '^\| 64 \| [0-9.]+ \| [0-9.]+ \| at (least|most) [0-9.]+ \|$'
cp out first
cp results.jsonl all.jsonl
head -n 13 all.jsonl >results.jsonl
learn
cmp out first || fail "a continued bench prints something else: $(diff out first)"
cmp results.jsonl all.jsonl || fail "a repeated training gives other numbers"
