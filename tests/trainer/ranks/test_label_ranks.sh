#!/usr/bin/env bash
# Objectives with labels, with dropout in their heads, also with adapters and with frozen blocks: two ranks, which are killed
# and resumed as two or as four, give the bits of one, in the exact metrics, the weights, the moments and what config.json says
# about the labels.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
make_table() {
  echo name,sequence,charge,size,family,has,structure
  awk 'BEGIN {
    srand(5)
    letters = "LAGVSERTIDPKQNFYMHWC"
    for (i = 0; i < 90; i++) {
      n = 5 + int(rand() * 50); sequence = ""; structure = ""; charge = 0
      for (x = 0; x < n; x++) {
        letter = substr(letters, 1 + int(rand() * 20), 1)
        sequence = sequence letter
        structure = structure (index("AELKMQ", letter) ? "H" : index("VIYFWT", letter) ? "E" : rand() < 0.1 ? "?" : "C")
        charge += index("KR", letter) > 0
      }
      has = (charge > 3 ? "base" : "") (n > 30 ? ";long" : "")
      family = charge > 3 ? "base" : n > 30 ? "long" : "short"
      printf "p%d,%s,%s,%.3f,%s,%s,%s\n", i, sequence, i % 7 ? charge / n : "", n * 1000, family, has, structure
    }
  }'
}
make_table >"$PLM_TMP/table.csv"
plm-pipeline ingest "$PLM_TMP/table.csv" --labels charge,size,family,has:classes,structure:residues -q \
  --corpus "$PLM_TMP/corpus" --split train=0.9,valid=0.05,test=0.05 || fail "ingest ended with $?"
trainer_config transformer
set=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.batch_tokens=256 --set data.max_length=64
  --set trainer.steps=3 --set trainer.checkpoint.every=1 --set trainer.head.dropout=0.25)
same_configs() {
  local folder
  for folder in "$2"/checkpoints/step_*; do
    diff "$1/checkpoints/$(basename "$folder")/config.json" "$folder/config.json" >&2 || fail "$folder has another config.json"
  done
}

# try OBJECTIVE RESUMED [ARG...]: as RESUMED ranks after the kill
try() {
  local objective=$1 resumed=$2 one=$PLM_TMP/one-$1 two=$PLM_TMP/two-$1
  shift 2
  local -a set_of=("${set[@]}" --set "trainer.objective=$objective" "$@")
  run_undisturbed_ranks 1 "$one" "${set_of[@]}"
  [ "$(jq -r .objective "$one/checkpoints/latest/config.json")" = "$objective" ] || fail "config.json has another objective"
  start_packer "$two"
  start_ranks_for 2 "$two" 2 "${set_of[@]}"
  mapfile -t ranks < <(ranks_of "$trainer_pid")
  kill -9 "${ranks[@]}"
  wait "$trainer_pid"
  no_rank_left "${ranks[@]}"
  [[ $(newest_step "$two") = [12] ]] || fail "the checkpoints are $(ls "$two/checkpoints")"
  run_ranks "$resumed" "$two" "${set_of[@]}" || fail "$resumed ranks of $objective ended with $?"
  stop_packer
  same_checkpoints "$one" "$two"
  same_configs "$one" "$two"
  same_run "$one" "$two" 3
}

try regression 2 --set 'trainer.labels=[charge,size]' --set trainer.head.hidden_size=48
try residues 2 --set trainer.labels=structure --set trainer.class_weights=balanced
[ -z "${PLM_TEST_FEWER:-}" ] || exit 0 # enough for `make test`: labels of sequences and of residues
try classification 4 --set trainer.labels=family --set trainer.class_weights=balanced --set trainer.lora.rank=4 \
  --set 'trainer.lora.targets=[q, v, up]' --set trainer.lora.dropout=0.1
try multilabel 4 --set trainer.labels=has --set model.architecture=patch_unet --set trainer.freeze.embeddings=true \
  --set trainer.freeze.blocks=1
