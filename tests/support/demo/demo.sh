#!/usr/bin/env bash
# What `make demo` runs once everything is built: it ingests the bundled protein families, runs
# pipeline.yaml, and shows what the model has learnt. Called again, it resumes the run, or only shows
# it when it is complete.
set -euo pipefail
cd "$(dirname "$0")/../../.."
bin=build/bin
corpus=data/families.corpus

source tests/support/demo/say.sh

if [ ! -e "$corpus" ]; then
  say "1. sequences into a corpus: plm-pipeline ingest"
  mkdir -p data
  "$bin/plm-pipeline" ingest tests/data/families.fasta.gz --corpus "$corpus" \
    --split train=0.85,valid=0.13,test=0.02
fi
"$bin/plm-pipeline" corpus "$corpus"

say "2. train and evaluate: plm-pipeline up pipeline.yaml"
"$bin/plm-pipeline" up pipeline.yaml

say "3. the loss: plm-pipeline metrics --plot"
"$bin/plm-pipeline" metrics trainer --plot
"$bin/plm-pipeline" metrics --csv --keys step,loss,perplexity,accuracy,baseline_entropy |
  awk -F, 'NR == 1 { print "\n  step   validation loss   perplexity   accuracy"; next }
           { printf "%6d %17.3f %12.1f %8.1f %%\n", $1, $2, $3, 100 * $4; composition = $5 }
           END { printf "%6s %17.3f   a model that knows the composition only\n", "", composition }'

say "4. proteins that it has not seen: plm-pipeline generate and score"
tests/support/demo/demo_proteins.sh runs/demo/checkpoints/latest "$corpus" tests/data/families.tsv

cat <<'END'

The split is random, so relatives of the held-out proteins were in the training set, and the figures say
how well the model fills in members of families it knows. Give `ingest` the clusters that MMseqs2 writes
(--clusters FILE.tsv) to hold out whole families.

The run is in runs/demo: checkpoints/ (each one is a model folder for Hugging Face), trainer.jsonl and
evaluator.jsonl (the metrics), tensorboard/, logs/. Try next:
  build/bin/plm-pipeline checkpoints --verify     checks every byte of every checkpoint
  build/bin/plm-pipeline metrics trainer          the training metrics
  build/bin/plm-pipeline report                   writes runs/demo/report.html, with all curves
  build/bin/plm-pipeline trace --step 1           the sequences that step 1 saw
  build/bin/plm-pipeline --help                   all commands
END
