#!/usr/bin/env bash
# What `make demo-labels` runs once everything is built: it predicts the secondary structure of protein
# chains, first with a probe on a language model, then by fine-tuning that model, and shows both beside what
# the amino acids alone tell. Called again, it resumes the runs, or only shows them when they are complete.
set -euo pipefail
cd "$(dirname "$0")/../../.."
plm=build/bin/plm-pipeline
table=tests/data/structure.csv.gz
settings=tests/support/demo/structure.yaml
corpus=data/structure.corpus
measured=runs/structure/measured
source tests/support/demo/say.sh

if [ ! -e "$corpus" ]; then
  say "1. chains and their labels into a corpus: plm-pipeline ingest --labels"
  mkdir -p data
  "$plm" ingest "$table" --labels structure --split-column split --corpus "$corpus"
fi

say "2. a language model of the chains, without labels: plm-pipeline up --set trainer.objective=mlm"
"$plm" up "$settings" --run runs/chains --set trainer.objective=mlm --set trainer.labels=[] \
  --set trainer.init_from=null

say "3. what the language model knows about the structure: plm-pipeline probe"
mkdir -p "$measured"
[ -s "$measured/probe.json" ] || "$plm" probe --json --checkpoint runs/chains/checkpoints/latest "$table" \
  --target structure --split split >"$measured/probe.json"

say "4. fine-tune it on the labels: plm-pipeline up"
"$plm" up "$settings"

say "5. chains that neither model has seen: plm-pipeline evaluate and predict"
"$plm" evaluate -q --json --checkpoint runs/structure/checkpoints/latest --corpus "$corpus" --split test \
  >"$measured/evaluate.json"
"$plm" corpus -q "$corpus" --fasta --split test |
  "$plm" predict -q --checkpoint runs/structure/checkpoints/latest - --output "$measured/predictions.csv"
tests/support/demo/demo_structure.sh "$table" "$measured"
