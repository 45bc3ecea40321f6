#!/usr/bin/env bash
# The limit on the size of files (ulimit -f): a write beyond it is an error with a message, not death by
# SIGXFSZ, and nothing is left behind.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 400
small_config pipeline.yaml unet
expect 0 plm-pipeline up pipeline.yaml
checkpoint=$PWD/run/checkpoints/latest
small_fasta many.fasta 3000 4

# limited KIB COMMAND…: fails with exit code 1 and the message, and leaves nothing that is called made*
limited() {
  local limit=$1
  shift
  rm -rf made*
  expect 1 limit_to "$limit" "$@"
  says err 'File too large'
  says err 'ulimit -f'
  [ -z "$(find . -maxdepth 1 \( -name 'made*' -o -name '.made*' -o -name '.plm-*' \))" ] ||
    fail "left behind by $*: $(find . -maxdepth 1 -name '*made*')"
}
limit_to() {
  local limit=$1
  shift
  (ulimit -f "$limit" && exec "$@")
}

for limit in 1 48 128 256; do # from the first pages of the database to its compact copy
  limited $limit plm-pipeline ingest many.fasta --corpus made
done
limited 400 plm-pipeline embed --checkpoint "$checkpoint" many.fasta --output made.npy
limited 400 plm-pipeline embed --checkpoint "$checkpoint" many.fasta --output made.safetensors
limited 64 plm-pipeline embed --checkpoint "$checkpoint" many.fasta --output made.npy # its copy of the sequences
limited 8 plm-pipeline generate --checkpoint "$checkpoint" --length 50 --count 1000 --output made.fasta
limited 1 plm-pipeline score --checkpoint "$checkpoint" --wild-type LAGVSERT --all --output made.csv
limited 100 plm-pipeline export --checkpoint "$checkpoint" --output made

# ---- the stages: the evaluator ends with whole lines, the trainer's checkpoints fail; both resume
lines=$(wc -l <run/evaluator.jsonl)
whole() { jq -es . "$1" >/dev/null && [ -z "$(tail -c 1 "$1")" ]; }
plm-packer -c pipeline.yaml 2>packer.log &
packer=$!
rm run/evaluator.jsonl
expect 1 limit_to 1 plm-evaluator -c pipeline.yaml
says err 'evaluator.jsonl: File too large'
whole run/evaluator.jsonl || fail "evaluator.jsonl has half a line: $(cat run/evaluator.jsonl)"
expect 0 plm-evaluator -c pipeline.yaml
[ "$(wc -l <run/evaluator.jsonl)" -eq "$lines" ] || fail "evaluator.jsonl has $(wc -l <run/evaluator.jsonl) lines"
kill $packer
drained $packer "the packer"

plm-packer -c pipeline.yaml --run small 2>packer.log &
expect 1 limit_to 100 plm-trainer -c pipeline.yaml --run small --set trainer.checkpoint.max_failed_checkpoints=2
says err 'File too large'
says err 'checkpoint [0-9]+ FAILED'
[ -z "$(find small/checkpoints -name '.tmp-*')" ] || fail "unfinished checkpoints are left"
expect 0 plm-trainer -c pipeline.yaml --run small
exact_metrics run/trainer.jsonl >run.exact
exact_metrics small/trainer.jsonl >small.exact
cmp run.exact small.exact || fail "the metrics differ after the limit"

# ---- the supervisor: the trainer fails for good, and the run ends with the reason
expect 1 limit_to 100 plm-pipeline up pipeline.yaml --run up --set trainer.restart=no \
  --set trainer.checkpoint.max_failed_checkpoints=2
says err 'File too large'
says err 'failed: trainer.0 exited with 1'
expect 0 plm-pipeline up pipeline.yaml --run up
