#!/usr/bin/env bash
# `plm-pipeline trace` of a run whose steps changed their size and then got a second corpus: what it says of a step never
# changes afterwards, and it agrees with the trainer's own position.
. "$PLM_ROOT/tests/support/shell/lib.sh"

for corpus in a b; do
  awk -v seed=$corpus 'BEGIN {
    for (i = 0; i < 60; i++) {
      printf ">%s%d\n", seed, i
      for (j = 0; j < 20 + i % 40; j++)
        printf "%s", substr("LAGVSERTIDPKQNFYMHWC", 1 + (i * 7 + j * 3 + (seed == "b")) % 20, 1)
      printf "\n"
    }
  }' >$corpus.fasta
  plm-pipeline ingest $corpus.fasta --corpus $corpus --split train=1 -q 2>/dev/null
done
# train CORPUS STEPS BATCH
train() {
  cat >pipeline.yaml <<END
version: 1
run: run
corpus: $1
network: {feed: "tcp://127.0.0.1:*", evaluation_feed: "tcp://127.0.0.1:*", announcements: "tcp://127.0.0.1:*"}
data: {max_length: 64}
model: {architecture: transformer, hidden_size: 16, num_attention_heads: 1, num_hidden_layers: 1}
trainer: {threads: 1, precision: fp32, steps: $2, batch_tokens: $3, micro_batch_tokens: 64}
END
  expect 0 plm-pipeline up pipeline.yaml trainer packer
}
# the chunks of steps FIRST to LAST
steps() {
  for ((step = $1; step <= $2; step++)); do plm-pipeline trace --run run --step "$step" --json; done
}
# consumed SOURCE: chunks of a source by the trainer's cursor
consumed() { jq ".cursor.sources[$1].chunks" run/checkpoints/latest/trainer.json; }

train a 3 128
steps 1 3 >first
[ "$(wc -l <first)" -eq 6 ] || fail "three steps of 2 chunks: $(wc -l <first)"
train a 5 512
steps 1 3 | diff first - || fail "the first steps changed with the batch"
steps 1 5 >second
[ "$(wc -l <second)" -eq "$(jq .cursor.chunks run/checkpoints/latest/trainer.json)" ] || fail "steps of 2 and 8 chunks"
train a 7 256
steps 1 5 | diff second - || fail "five steps changed with the batch"
chunks=$(jq -c '[.history[] | select(has("step_chunks")) | [.step, .step_chunks.before, .step_chunks.now]]' \
  run/checkpoints/latest/trainer.json)
[ "$chunks" = '[[3,2,8],[5,8,4]]' ] || fail "the history has no numbers: $chunks"
steps 1 7 | jq -c '[.epoch, .chunk]' >third
train '[{path: a, weight: 1}, {path: b, weight: 1}]' 9 256
steps 1 7 | jq -c '[.epoch, .chunk]' | diff third - || fail "the steps on one corpus changed with the second"
for source in 0 1; do
  [ "$(steps 1 9 | jq -c "select(.source == $source)" | wc -l)" -eq "$(consumed $source)" ] || fail "source $source"
done
[ "$(consumed 1)" -eq 4 ] || fail "half of the last two steps: $(consumed 1)"

# ---- the trainer's own hash over what it consumed proves each of them ----
for step in 1 3 5 7 9; do expect 0 plm-pipeline trace --run run --step $step --verify; done

# ---- numbers that no run has ----
cp run/checkpoints/latest/trainer.json state.json
damaged() { # JQ TEXT
  jq -c "$1" state.json >run/checkpoints/latest/trainer.json
  expect 1 plm-pipeline trace --run run --step 1
  says err "$2\$"
}
damaged '.step = -1' 'step is not a whole number from 0 to 2\^53'
damaged '.cursor.chunks = 1e300' 'chunks is not a whole number from 0 to 2\^53'
damaged 'del(.cursor.mixture) | .resolved.step_chunks = 2.5' 'step_chunks is not a whole number from 0 to 2\^53'
damaged 'del(.cursor.mixture) | .resolved.step_chunks = 5e9' 'its steps have 5000000000 chunks, more than there can be'
