#!/usr/bin/env bash
# `trace --verify` proves from the checkpoints what a step was trained on, and says so if the corpus, the configuration or
# a checkpoint was changed afterwards.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
expect 0 plm-pipeline up pipeline.yaml trainer packer --set trainer.steps=6 --set trainer.checkpoint.every=2 \
  --set data.window_groups=1 --set trainer.batch_tokens=8192 --set trainer.checkpoint.keep_last=9
verify() { plm-pipeline trace --run run --step "$@" --verify; }
proved() { says err "^plm-pipeline: proved: step $1 was trained on exactly these documents \\(chain from $2 to checkpoint $3\\)\$"; }

# ---- from the checkpoint before the step to the one that contains it; across epochs ----
[ "$(jq .cursor.epoch run/checkpoints/latest/trainer.json)" -ge 1 ] || fail "no epoch ended"
expect 0 verify 1
proved 1 'step 0' 2
expect 0 verify 2
proved 2 'step 0' 2
plm-pipeline trace --run run --step 3 >listed
expect 0 verify 3
proved 3 'checkpoint 2' 4
diff listed out || fail "the list is another one with --verify"
rm -r run/checkpoints/step_00000002 # retention
expect 0 verify 3
proved 3 'step 0' 4
expect 2 verify 7
says err "^plm-pipeline: --step 7 is beyond the run's last step, 6\$"

# ---- what was changed afterwards ----
cp -r run other
sed -i 's/^  window_groups: 1$/  window_groups: 2/' other/pipeline.yaml
expect 1 plm-pipeline trace --run other --step 3 --verify
says err 'steps 1 to 4 were not trained on these documents: their chain differs from the one in checkpoint 4$'
rm -r other
cp -r run other
jq -c '.cursor.chain = "0123456789abcdef0123456789abcdef"' run/checkpoints/step_00000004/trainer.json \
  >other/checkpoints/step_00000004/trainer.json
expect 1 plm-pipeline trace --run other --step 3 --verify
says err 'their chain differs from the one in checkpoint 4$'
expect 1 plm-pipeline trace --run other --step 5 --verify # from the changed checkpoint on
says err 'steps 5 to 6 were not trained on these documents: their chain differs from the one in checkpoint 6$'
jq -c 'del(.cursor.chain)' run/checkpoints/step_00000004/trainer.json >other/checkpoints/step_00000004/trainer.json
expect 1 plm-pipeline trace --run other --step 3 --verify
says err 'step_00000004/trainer.json does not say what the run consumed$'
for number in -8 1e300 2.5; do
  jq -c ".cursor.chunks = $number" run/checkpoints/step_00000004/trainer.json >other/checkpoints/step_00000004/trainer.json
  expect 1 plm-pipeline trace --run other --step 3 --verify
  says err 'step_00000004/trainer.json does not say what the run consumed$'
done

# ---- another corpus, and the same documents in another order ----
mv corpus kept
plm-pipeline ingest <(tac corpus.fasta | paste - - | awk -F'\t' '{print $2; print $1}') --corpus corpus \
  --split train=0.8,valid=0.1,test=0.1 -q
expect 2 verify 3
says err "the run was trained on corpus $(jq -r .fingerprint kept/corpus.json), but .*/corpus is $(jq -r .fingerprint corpus/corpus.json)\$"
rm -r corpus
mv kept corpus

# ---- a bit of the corpus's data ----
size=$(stat -c %s corpus/data.mdb)
flipped=0
for ((place = 8192 + 1000; place < size; place += 4096)); do
  cp corpus/data.mdb saved
  byte=$(od -An -tu1 -j "$place" -N 1 corpus/data.mdb)
  printf "%b" "\\x$(printf %02x $((byte ^ 4)))" | dd of=corpus/data.mdb bs=1 seek="$place" conv=notrunc status=none
  if ! verify 3 >out 2>err; then flipped=$((flipped + 1)); fi
  cp saved corpus/data.mdb
done
[ "$flipped" -ge 3 ] || fail "a changed bit was found only $flipped times"
expect 0 verify 3
