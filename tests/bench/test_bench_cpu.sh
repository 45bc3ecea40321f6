#!/usr/bin/env bash
# The benchmark runs, and each row has both figures. Times are not checked.
. "$PLM_ROOT/tests/support/shell/lib.sh"
[ -x "${PLM_VENV:-}/bin/python" ] || { echo "no Python environment (make venv)"; exit 77; }
[ -x "$PLM_BUILD/tests/bench/bench_step" ] || { echo "the benchmarks are not built"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1 HF_HOME=$PLM_TMP/huggingface TMPDIR=$PLM_TMP

"$PLM_VENV/bin/python" "$PLM_ROOT/tests/bench/bench_cpu.py" --quick --threads 1 \
  --build "$PLM_BUILD" --out "$PLM_TMP/results/table.md" >table 2>progress ||
  { tail -n 40 progress; fail "the benchmark failed"; }
cmp -s table results/table.md || fail "the file of --out differs from what was printed"

# what, unit, ours, peer, which, ratio, bar, met
grep '^| ' table | tail -n +2 >rows
expected=('step demo fp32' 'product 2048^3 fp32' 'attention demo' 'a call for each document'
  'executed over allowed area' 'packer, corpus' 'padding, 1024' 'ready tokens, 1 worker'
  'datasets, no workers' 'datasets, 2 workers' 'mosaicml-streaming' 'up --dry-run' 'up to step 1'
  'resume to the next step, warm' 'checkpoints --verify of 0.0084 GB'
  'embed ESM-2 8M fp32' 'score ESM-2 8M fp32' 'embed ESM-2 8M int8' 'score ESM-2 8M int8'
  'fine-tuning ESM-2 35M fp32, LoRA of q, v' 'processor time')
grep -q 'bf16 is not measured: this processor has no bf16 instructions' table ||
  expected+=('step demo bf16' 'product 2048^3 bf16' 'embed ESM-2 8M bf16' 'score ESM-2 8M bf16')
for row in "${expected[@]}"; do
  grep -qF "$row" rows || fail "no row: $row"
done
awk -F'|' '
  /mosaicml-streaming: not installed/ { next }
  function number(text) { gsub(/[ ,%±]|±.*/, "", text); return text + 0 }
  { if (number($4) <= 0 || number($5) <= 0 || number($7) <= 0) { print "row without a figure:", $0; bad = 1 }
    if ($8 ~ />=|<=/ && $9 !~ /yes|NO/) { print "bar without a verdict:", $0; bad = 1 } }
  END { exit bad }' rows || fail "figures are missing"
if plm-pipeline embed -h >/dev/null 2>&1; then
  grep -q '^| embedding' rows || fail "no row: embedding"
fi
[ ! -e "$PLM_ROOT/tests/bench/peers/__pycache__" ] || fail "left behind: __pycache__"
