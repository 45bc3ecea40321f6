#!/usr/bin/env bash
# What a trainer refuses, reports and counts: changed keys, changed machines, another trainer, skipped
# updates, no packers, micro-batches.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config transformer
log=$PLM_TMP/trainer.log
# trainer_ends STATUS TEXT RUN [ARG...]: a trainer must end with STATUS and log TEXT
trainer_ends() {
  local wanted=$1 text=$2
  shift 2
  : >"$log"
  run_trainer "$@"
  local status=$?
  [ "$status" -eq "$wanted" ] || fail "exit $status instead of $wanted ($text)"
  grep -q -- "$text" "$log" || fail "nobody says \"$text\""
}

run=$PLM_TMP/run
start_packer "$run"
trainer_ends 0 "complete at step 20" "$run" --set trainer.steps=20
echo '{"feed": "tcp://127.0.0.1:1", "announcements": "tcp://127.0.0.1:2", "packer": "kept"}' >"$run/endpoints.json" # as after a kill
trainer_ends 0 "complete at step 20" "$run" --set trainer.steps=20
[ "$(jq -c 'keys' "$run/endpoints.json")" = '["packer","run_id"]' ] || fail "a complete run has the endpoints $(jq -c . "$run/endpoints.json")"

# ---- a resume with other keys ------------------------------------------------------------------
trainer_ends 2 "model.hidden_size changed" "$run" --set trainer.steps=30 --set model.hidden_size=128
trainer_ends 2 "seed changed" "$run" --set trainer.steps=30 --set seed=12
trainer_ends 2 "the run was trained on corpus" "$run" --set trainer.steps=30 \
  --fingerprint 00112233445566778899aabbccddeeff
[ "$(lines_of "$run/trainer.jsonl")" -eq 20 ] || fail "a refused resume touched the metrics"
[ -e "$run/DONE" ] || fail "a refused resume removed DONE"
trainer_ends 0 "trainer.steps: 20 -> 30" "$run" --set trainer.steps=30
jq -s -e 'all(.[:20][]; (.step % 10 == 0 and .checkpoint_ms > 0 or .step % 10 > 1 and .checkpoint_ms == 0 or .step % 10 == 1)
  and .step_ms > .data_wait_ms and (.padded_tokens_per_second * .step_ms / 512000 - 1 | fabs) < 1e-9)' \
  "$run/trainer.jsonl" >/dev/null || fail "the times of steps: $(jq -c '[.step, .checkpoint_ms, .step_ms]' "$run/trainer.jsonl")"
jq -e '.history[0] | .step == 20 and (.changes | index("trainer.steps: 20 -> 30") != null)' \
  "$run/checkpoints/step_00000030/trainer.json" >/dev/null || fail "the history does not tell"
[ -z "$(jq -e 'select(.exact == false)' "$run/trainer.jsonl")" ] || fail "inexact without reason"

# ---- a resume that is not bit-exact --------------------------------------------------------------
trainer_ends 0 "not bit-exact: threads was 2, is 1" "$run" --set trainer.steps=40 --set trainer.threads=1
grep -q 'the run continues after step 30: trainer.steps was raised to 40$' "$log" || fail "nobody says that the run continues"
jq -s -e '(.[:30] | all(has("exact") | not)) and (.[30:] | all(.exact == false))' \
  "$run/trainer.jsonl" >/dev/null || fail "lines do not tell what is exact"
jq -e '.exact == false' "$run/checkpoints/step_00000040/trainer.json" >/dev/null ||
  fail "trainer.json does not tell"

# avx512 and the levels above it have the same vector kernels
level=$("$PLM_BUILD/tests/processors/levels/tool_levels" | sed -n 's/^has //p' | head -n 1)
case $level in avx512_bf16 | amx)
  PLM_CPU_ISA=avx512 trainer_ends 0 "not bit-exact: level of instructions (PLM_CPU_ISA) was $level, is avx512" \
    "$run" --set trainer.steps=41
esac

# ONEDNN_MAX_CPU_ISA limits only oneDNN
products=$(jq -r .resolved.products "$run/checkpoints/latest/trainer.json")
case $level:$products in avx*:oneDNN* | amx:oneDNN*)
  ONEDNN_MAX_CPU_ISA=SSE41 trainer_ends 0 "not bit-exact: product library was $products, is oneDNN .*, sse41" \
    "$run" --set trainer.steps=42
esac

# ---- another trainer on the run --------------------------------------------------------------------
start_trainer "$run" --set trainer.steps=100000
until_lines "$run" 43
first=$trainer_pid
trainer_ends 6 "is process $first" "$run"
says_first() { grep -q "\"pid\":$first," "$run/trainer.lock"; }
for _ in 1 2 3; do # without its lock, the first trainer continues and creates the lock again
  rm "$run/trainer.lock"
  trainer_ends 6 "another trainer writes this file\|another trainer has this run\|is process $first" "$run"
  lines=$(lines_of "$run/trainer.jsonl")
  trainer_pid=$first
  until_lines "$run" $((lines + 3))
  wait_for 20 says_first
done
# without the lock and the metrics nobody can tell how many write: the first one stops before its next line
rm "$run/trainer.lock"
mv "$run/trainer.jsonl" "$PLM_TMP/moved.jsonl"
wait "$first"
status=$?
[ "$status" -eq 6 ] || fail "a trainer without its files ends with $status"
grep -q 'trainer.jsonl: this file was removed or replaced while the trainer writes it' "$log" ||
  fail "a trainer whose files are gone does not say so"
jq -s -e '[.[].step] == [range(1; length + 1)]' "$PLM_TMP/moved.jsonl" >/dev/null || fail "two trainers wrote lines"
mv "$PLM_TMP/moved.jsonl" "$run/trainer.jsonl"
trainer_ends 0 "complete at step" "$run" --set "trainer.steps=$(($(lines_of "$run/trainer.jsonl") + 20))"
jq -s -e '[.[].step] == [range(1; length + 1)]' "$run/trainer.jsonl" >/dev/null || fail "the run does not resume"
stop_packer

# ---- only the weights of another run ---------------------------------------------------------------
run=$PLM_TMP/heir
start_packer "$run"
trainer_ends 0 "initial weights from" "$run" --set trainer.steps=2 \
  --set "trainer.init_from=$PLM_TMP/run/checkpoints/step_00000030"
cmp "$run/checkpoints/step_00000000/model.safetensors" \
  "$PLM_TMP/run/checkpoints/step_00000030/ema.safetensors" || fail "other weights"
stop_packer
trainer_ends 2 "model.hidden_size is 64 in the folder, 128 here" "$PLM_TMP/unknown" --set model.hidden_size=128 \
  --set "trainer.init_from=$PLM_TMP/run/checkpoints/step_00000030"
trainer_ends 2 "there is no such folder" "$PLM_TMP/nothing" \
  --set "trainer.init_from=$PLM_TMP/nowhere"

# ---- a run that cannot write down which corpus it trains on ------------------------------------------
fingerprint=$(jq -r .fingerprint corpus/corpus.json)
for given in "" "$fingerprint"; do # from the first packer, or from the start
  run=$PLM_TMP/unknown-${given:-corpus}
  mkdir -p "$run/CORPUS.tmp" # in the place of the file
  start_packer "$run"
  trainer_ends 6 "cannot create .*CORPUS.tmp: Is a directory" "$run" --set trainer.steps=3 ${given:+--fingerprint "$given"}
  stop_packer
  [ "$(newest_step "$run")" -eq 0 ] && [ ! -s "$run/trainer.jsonl" ] || fail "it trains on an unknown corpus"
  [ -z "$given" ] || [ ! -e "$run/checkpoints/step_00000000" ] || fail "it has begun on an unknown corpus"
done

# ---- skipped updates -------------------------------------------------------------------------------
run=$PLM_TMP/skips
start_packer "$run"
trainer_ends 5 "5 steps in a row were skipped, 1 to 5: .*" "$run" --set trainer.masking.mask_rate=0 \
  --set trainer.max_skipped_steps=5
"$PLM_BIN/plm-pipeline" checkpoints "$run" --verify >/dev/null || fail "the last checkpoint suffered"
jq -s -e 'length == 4 and all(.loss == null) and .[3].skipped_updates == 4' "$run/trainer.jsonl" \
  >/dev/null || fail "skipped steps are not counted"
stop_packer

run=$PLM_TMP/some-skips # some steps have no chosen token and update nothing
start_packer "$run"
trainer_ends 0 complete "$run" --set trainer.masking.mask_rate=0.002 --set trainer.batch_tokens=128 \
  --set trainer.micro_batch_tokens=128 --set trainer.max_skipped_steps=60
skipped=$(tail -n 1 "$run/trainer.jsonl" | jq .skipped_updates)
[ "$skipped" -gt 0 ] && [ "$skipped" -lt 60 ] || fail "$skipped of 60 steps skipped"
[ "$(jq -s '[.[] | select(.loss == null)] | length' "$run/trainer.jsonl")" -eq "$skipped" ] ||
  fail "skipped_updates does not count the steps without a loss"
jq -e ".counters.updates == 60 - $skipped" "$run/checkpoints/step_00000060/trainer.json" >/dev/null ||
  fail "Adam's t is not the number of updates"
stop_packer

# ---- micro-batches: the same step up to rounding -----------------------------------------------------
for micro in 128 256 512; do
  run=$PLM_TMP/micro-$micro
  start_packer "$run"
  run_trainer "$run" --set trainer.steps=20 --set "trainer.micro_batch_tokens=$micro" ||
    fail "micro-batches of $micro"
  stop_packer
  jq -r '"\(.step) \(.loss) \(.tokens)"' "$run/trainer.jsonl" >"$PLM_TMP/losses-$micro"
done
for micro in 128 256; do
  paste -d' ' "$PLM_TMP/losses-512" "$PLM_TMP/losses-$micro" |
    awk '{ off = $2 / $5 - 1; if (off < 0) off = -off; if (off > 1e-5 || $3 != $6) exit 1 }' ||
    fail "the loss depends on micro-batches of $micro"
done

# ---- no packers ----------------------------------------------------------------------------------------
run=$PLM_TMP/lonely
trainer_ends 4 "packer" "$run" --set network.wait_packers_s=1
[ -e "$run/checkpoints/step_00000000/MANIFEST" ] || fail "nothing was published"

# ---- the memory estimate ------------------------------------------------------------------------------------
"$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" --run "$PLM_TMP/none" --dry-run --json |
  jq -e '.parameter_count > 10000 and .total > .activations' >/dev/null || fail "dry run"
[ ! -e "$PLM_TMP/none" ] || fail "a dry run made a folder"
