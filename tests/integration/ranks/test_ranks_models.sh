#!/usr/bin/env bash
# Checkpoints of one, two and four ranks are the same models: `evaluate`, `embed` and `export` give the same
# bytes for each of them.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
small_fasta proteins.fasta 20 5
trainer_config unet

# results RANKS: what the three commands make of the run's last checkpoint
results() {
  local checkpoint=runs/$1/checkpoints/step_00000003 folder=results/$1
  mkdir -p "$folder"
  plm-pipeline evaluate --checkpoint "$checkpoint" --corpus corpus --threads 1 --device cpu --json 2>evaluate.log |
    jq "del(.checkpoint, .seconds)" >"$folder/evaluate.json" ||
    fail "evaluate with $1 ranks"
  plm-pipeline embed --checkpoint "$checkpoint" --threads 1 --device cpu --pooling mean,max --output "$folder/embed.safetensors" \
    proteins.fasta >embed.log 2>&1 || fail "embed with $1 ranks"
  plm-pipeline export --checkpoint "$checkpoint" --name model --output "$folder/export" >export.log 2>&1 || fail "export with $1 ranks"
}

for ranks in 1 2 4; do
  start_packer "runs/$ranks"
  run_ranks "$ranks" "runs/$ranks" "${rank_settings[@]}" --set trainer.steps=3 || fail "$ranks ranks ended with $?"
  stop_packer
  results "$ranks"
  diff -r results/1 "results/$ranks" >difference.log || fail "the results of $ranks ranks differ"
done
[ -s results/4/embed.safetensors ] && [ -s results/4/export/model.safetensors ] && jq -e '.loss > 0' results/4/evaluate.json >/dev/null ||
  fail "a result is missing: $(ls -lR results/4)"
