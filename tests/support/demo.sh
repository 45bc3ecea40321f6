#!/usr/bin/env bash
# What `make demo` runs once everything is built: ingest the shipped sequences, run pipeline.yaml,
# show the curve and where everything lies. A second call resumes or, when complete, shows.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=build/bin

bold='' plain=''
[ ! -t 1 ] || [ -n "${NO_COLOR-}" ] || bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }

if [ ! -e data/sample.corpus ]; then
  say "1. sequences into a corpus: plm-pipeline ingest"
  mkdir -p data
  "$bin/plm-pipeline" ingest tests/data/sample.fasta.gz --corpus data/sample.corpus \
    --split train=0.9,valid=0.08,test=0.02
fi
"$bin/plm-pipeline" corpus data/sample.corpus

say "2. train and evaluate: plm-pipeline up pipeline.yaml"
"$bin/plm-pipeline" up pipeline.yaml

say "3. what came of it: plm-pipeline metrics --plot"
"$bin/plm-pipeline" metrics trainer --plot
"$bin/plm-pipeline" metrics --keys step,loss,baseline_entropy,perplexity,accuracy

cat <<'END'

The run lies in runs/demo: checkpoints/ (every one is a model folder), trainer.jsonl and
evaluator.jsonl (the metrics), tensorboard/, logs/. Next:
  build/bin/plm-pipeline checkpoints --verify     every byte of every checkpoint
  build/bin/plm-pipeline metrics trainer          the training metrics
  build/bin/plm-pipeline trace --step 1           which sequences step 1 saw
  build/bin/plm-pipeline --help                   all commands
END
