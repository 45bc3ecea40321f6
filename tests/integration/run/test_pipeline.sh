#!/usr/bin/env bash
# The whole pipeline by one command, for each architecture: every step is in trainer.jsonl, every
# checkpoint verifies and is evaluated once, the run is done, and no process is left.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
for architecture in transformer unet patch_unet; do
  run=run-$architecture
  small_config "$architecture.yaml" "$architecture"
  expect 0 plm-pipeline up "$architecture.yaml" --run "$run"

  [ "$(jq -s length "$run/trainer.jsonl")" -eq 12 ] || fail "not one line a step"
  jq -se '[.[].step] == [range(1; 13)]' "$run/trainer.jsonl" >/dev/null || fail "steps are not 1..12"
  jq -se 'all(.[]; .v == 1 and .loss > 0 and .tokens > 0 and .step_ms > 0)' "$run/trainer.jsonl" >/dev/null ||
    fail "a field is missing"
  jq -se '[.[].step] == [0, 4, 8, 12]' "$run/evaluator.jsonl" >/dev/null || fail "not every checkpoint evaluated once"
  jq -se 'all(.[]; .split == "valid" and .tokens > 100 and (.loss | isnormal) and .baseline_entropy > 2)' \
    "$run/evaluator.jsonl" >/dev/null || fail "evaluator fields"
  [ "$(jq .step "$run/DONE")" -eq 12 ] || fail "DONE"
  expect 0 plm-pipeline checkpoints "$run" --verify
  [ "$(readlink "$run/checkpoints/latest")" = step_00000012 ] || fail "latest"
  nobody_left "$PWD/$run" || fail "a process is left"
  expect 0 plm-pipeline logs --run "$run"
  [ "$(grep -c '|' out)" -gt 10 ] && sed 's/^[^|]*| //' out | LC_ALL=C sort -cs -k 1,1 || fail "logs are not in the order of time"
  [ "$(sed 's/ .*//' out | sort -u | tr '\n' ' ')" = 'evaluator.0 packer.0 trainer.0 ' ] || fail "logs of all"

  # a second time: the run is complete already, and its trainer has left a sign of life, as after a power cut
  echo '{}' >"$run/pulse.trainer.json"
  expect 0 plm-pipeline up "$architecture.yaml" --run "$run"
  cat out err >both
  says both 'complete at step 12'
  [ ! -e "$run/pulse.trainer.json" ] || fail "a pulse is left"
  [ "$(jq -s length "$run/evaluator.jsonl")" -eq 4 ] || fail "evaluated twice"
done

# A run whose last checkpoint does not verify is not complete: it continues from the one before.
kept=$(md5sum <"$run/checkpoints/step_00000012/optimizer.safetensors")
printf x | dd of="$run/checkpoints/step_00000012/optimizer.safetensors" bs=1 seek=5000 conv=notrunc status=none
expect 0 plm-pipeline up "$architecture.yaml" --run "$run"
says err 'resuming after step 8'
expect 0 plm-pipeline checkpoints "$run" --verify
[ "$(md5sum <"$run/checkpoints/step_00000012/optimizer.safetensors")" = "$kept" ] || fail "another step 12"
[ "$(jq .step "$run/DONE")" -eq 12 ] || fail "DONE again"
