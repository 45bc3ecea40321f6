#!/usr/bin/env bash
# trainer.shares: the number decides the bits of a run, a resume keeps it, and wrong numbers are refused.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config patch_unet
run=$PLM_TMP/run
final() { sha256sum <"$1/checkpoints/step_00000012/model.safetensors"; }
common=(--set trainer.steps=12 --set trainer.checkpoint.every=4 --set trainer.micro_batch_tokens=128
  --set trainer.clip.auto_percentile=0)

for shares in 1 2 4; do
  start_packer "$run-$shares"
  run_trainer "$run-$shares" "${common[@]}" --set "trainer.shares=$shares" || fail "$shares shares"
  [ "$(jq .resolved.shares "$run-$shares/checkpoints/step_00000012/trainer.json")" = "$shares" ] ||
    fail "trainer.json does not say $shares shares"
  jq -r .loss "$run-$shares/trainer.jsonl" >"$PLM_TMP/losses-$shares"
done
for shares in 2 4; do
  [ "$(final "$run-$shares")" != "$(final "$run-1")" ] || fail "$shares shares have the bits of one"
  paste -d' ' "$PLM_TMP/losses-1" "$PLM_TMP/losses-$shares" | head -n 5 |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1) bad = 1 } END { exit bad || NR != 5 }' ||
    fail "the losses of $shares shares differ: $(paste "$PLM_TMP/losses-1" "$PLM_TMP/losses-$shares")"
done
[ "$(final "$run-2")" != "$(final "$run-4")" ] || fail "4 shares have the bits of 2"

# a run that was killed keeps its shares, although they are not asked for again
start_and_kill "$run-again" 6 "${common[@]}" --set trainer.shares=4
run_trainer "$run-again" "${common[@]}" || fail "the resume"
same_run "$run-4" "$run-again" 12
[ -z "$(jq -e 'select(.exact == false)' "$run-again/trainer.jsonl")" ] || fail "it calls itself inexact"

# another number is a change of bits, and is said
run_trainer "$run-again" "${common[@]}" --set trainer.steps=16 --set trainer.shares=2 || fail "16 steps"
grep -q "not bit-exact: shares of a step was 4, is 2" "$PLM_TMP/trainer.log" || fail "nobody says what differs"
[ "$(jq .exact "$run-again/checkpoints/step_00000016/trainer.json")" = false ] || fail "it calls itself exact"

# what is refused
expect 2 plm-pipeline validate pipeline.yaml --set trainer.shares=3
says err 'trainer.shares: 3 does not divide the 4 chunks of a step'
expect 2 plm-pipeline validate pipeline.yaml --set trainer.shares=4 --set trainer.micro_batch_tokens=256
says err 'trainer.micro_batch_tokens: 256 does not divide a share of trainer.batch_tokens \(trainer.shares\) \(128\)'

# three gradients are held for 5 to 8 shares
memory() {
  plm-trainer -c pipeline.yaml --dry-run --json --set trainer.batch_tokens=1024 --set trainer.micro_batch_tokens=128 \
    --set "trainer.shares=$1" | jq .shares
}
[ "$(memory 1)" -eq 0 ] || fail "one share holds a gradient"
[ "$(memory 8)" -eq $((3 * $(memory 2))) ] || fail "8 shares do not hold three gradients"
