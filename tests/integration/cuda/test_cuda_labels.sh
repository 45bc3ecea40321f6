#!/usr/bin/env bash
# Runs on labels with device: cuda, on the emulated backend: a run that is killed and resumed has the same bits, and the
# losses are those of the CPU. The heads have dropout, class weights and a hidden layer, and some labels are missing.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
awk 'BEGIN { print "name,sequence,tm,ph,ss" }
  /^>/ { name = substr($1, 2); n++; next }
  {
    ss = $0
    gsub(/[A-F]/, "H", ss); gsub(/[G-L]/, "E", ss); gsub(/[M-R]/, "?", ss); gsub(/[S-Z]/, "C", ss)
    printf "%s,%s,%s,%s,%s\n", name, $0, n % 3 ? n / 4 : "", n % 5 ? -n : "", ss
  }' corpus.fasta >table.csv
plm-pipeline ingest table.csv --corpus corpus --labels tm,ph,ss:residues --split train=0.9,valid=0.1 --force -q 2>ingest.log ||
  fail "ingest: $(cat ingest.log)"

# tries NAME SET...: on both devices
tries() {
  local whole=$1-whole killed=$1-killed host=$1-host
  shift
  local -a set=(--set trainer.head.dropout=0.2 "$@")
  run_undisturbed "$host" "${set[@]}"
  export PLM_CUDA_LIBRARY=$emulated
  run_undisturbed "$whole" --set trainer.device=cuda "${set[@]}"
  start_and_kill "$killed" 3 --set trainer.device=cuda "${set[@]}"
  run_trainer "$killed" --set trainer.device=cuda "${set[@]}" || fail "the resumed run ended with $?"
  stop_packer
  unset PLM_CUDA_LIBRARY
  same_run "$whole" "$killed" 4
  jq -se --slurpfile host "$host/trainer.jsonl" \
    'length == 4 and all(range(4) as $i | .[$i].loss / $host[$i].loss - 1 | fabs; . < 1e-4)' \
    "$whole/trainer.jsonl" >/dev/null ||
    fail "$whole: $(jq -c '[.loss, .grad_norm]' "$whole/trainer.jsonl" "$host/trainer.jsonl")"
}
tries numbers --set trainer.objective=regression --set 'trainer.labels=[tm,ph]' --set trainer.head.hidden_size=16
tries residues --set trainer.objective=residues --set trainer.labels=ss --set trainer.class_weights=balanced
