#!/usr/bin/env bash
# loss_by_source: it changes no bit of a run, is nearly the same on the emulated CUDA device, where passes are recorded
# and replayed, and reaches TensorBoard, `metrics` and `report`. That the numbers are right is what
# tests/golden/test_loss_by_source.py compares with PyTorch.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
small_fasta other.fasta 90
plm-pipeline ingest other.fasta --corpus other --split train=0.8,valid=0.1,test=0.1 -q
sed 's/^corpus: .*/corpus: [{path: corpus, weight: 2}, {path: other}]/' pipeline.yaml >mixture.yaml
sed 's/^corpus: .*/corpus: [{path: corpus}]/' pipeline.yaml >list.yaml

on_device() { # DEVICE CONFIG RUN: 8 chunks in a step, two in a micro-batch
  expect 0 on_cuda plm-pipeline up "$2" trainer packer --run "$3" --set "trainer.device=$1" \
    --set trainer.batch_tokens=512 --set trainer.micro_batch_tokens=128
}
# is RUN FILTER: holds of the lines of its metrics
is() { jq -se "$2" "$1/trainer.jsonl" >/dev/null || fail "$1: not $2: $(cat "$1/trainer.jsonl")"; }

# ---- a list with one corpus is the same run as that corpus ----
for device in cpu cuda; do
  on_device $device pipeline.yaml one-$device
  on_device $device list.yaml list-$device
  for file in model optimizer; do
    cmp {one,list}-$device/checkpoints/step_00000004/$file.safetensors || fail "$file on $device"
  done
  same() { exact_metrics "$1/trainer.jsonl" | jq -c 'del(.tokens_by_source, .loss_by_source)'; }
  diff <(same one-$device) <(same list-$device) || fail "the metrics on $device"
  is one-$device 'length == 4 and all(.[]; has("loss_by_source") or has("tokens_by_source") | not)'
  is list-$device 'length == 4 and all(.[]; (.loss_by_source | keys) == ["corpus"]
    and (.loss_by_source.corpus / .loss - 1 | fabs) < 1e-14)'
done

# ---- the devices agree ----
on_device cpu mixture.yaml cpu
on_device cuda mixture.yaml cuda
is cpu 'length == 4 and all(.[]; (.loss_by_source | keys_unsorted) == ["corpus", "other"]
  and (.loss_by_source | (.corpus - .other | fabs) > 1e-3 and .corpus > 0 and .other > 0))'
jq -se --slurpfile cuda cuda/trainer.jsonl 'all(.[]; . as $cpu | $cuda[.step - 1] as $other |
  all("corpus", "other"; ($cpu.loss_by_source[.] - $other.loss_by_source[.] | fabs) < 1e-3))' cpu/trainer.jsonl \
  >/dev/null || fail "the devices differ: $(jq -c '[.step, .loss_by_source]' {cpu,cuda}/trainer.jsonl)"

# ---- where it is shown ----
expect 0 plm-pipeline metrics trainer --run cpu --csv --keys step,loss_by_source/other
jq -rs '"step,loss_by_source/other", (.[] | "\(.step),\(.loss_by_source.other)")' cpu/trainer.jsonl >wanted
awk -F, 'NR == FNR { wanted[FNR] = $2; next } FNR == 1 ? $2 != wanted[1] : $2 - wanted[FNR] != 0 { bad = 1 }
  END { exit bad || FNR != 5 }' wanted out || fail "the column: $(paste wanted out)"
expect 0 plm-pipeline metrics trainer --run cpu --plot --keys loss_by_source
says out '^ +loss_by_source  - cpu corpus  - cpu other$'
expect 0 plm-pipeline report cpu --output report.html
for chart in 'Loss by source' 'Tokens by source'; do says report.html "aria-label=\"$chart\""; done
expect 0 plm-pipeline report one-cpu --output one.html
! matches 'by source' <one.html || fail "the report of one corpus has sources"
if [ -n "${PLM_VENV:-}" ]; then
  "$PLM_VENV/bin/python" - >tags <<'PYTHON' || fail "TensorBoard cannot read the events"
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator("cpu/tensorboard/trainer")
events.Reload()
for tag in ("loss_by_source/corpus", "loss_by_source/other"):
    scalars = events.Scalars(tag)
    print(tag, len(scalars), scalars[-1].step, scalars[-1].value)
PYTHON
  for source in corpus other; do
    value=$(tail -n 1 cpu/trainer.jsonl | jq ".loss_by_source.$source")
    awk -v tag="loss_by_source/$source" -v value="$value" \
      '$1 == tag && $2 == 4 && $3 == 4 && $4 / value - 1 < 1e-6 && $4 / value - 1 > -1e-6 { found = 1 }
       END { exit !found }' tags || fail "TensorBoard has other values of $source: $(cat tags)"
  done
fi
