#!/usr/bin/env bash
# loss_by_source: it changes no bit of a run, and is nearly the same on the emulated CUDA device, where passes are recorded
# and replayed. That the numbers are right is what tests/golden/test_loss_by_source.py compares with PyTorch; where they are
# shown: test_step_report.c, test_metrics_curves.c, test_command_metrics.c and test_report_parts.c.
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
on_device cuda pipeline.yaml one
on_device cuda list.yaml list
for file in model optimizer; do cmp {one,list}/checkpoints/step_00000004/$file.safetensors || fail "$file"; done
same() { exact_metrics "$1/trainer.jsonl" | jq -c 'del(.tokens_by_source, .loss_by_source)'; }
diff <(same one) <(same list) || fail "the metrics"
is one 'length == 4 and all(.[]; has("loss_by_source") or has("tokens_by_source") | not)'
is list 'length == 4 and all(.[]; (.loss_by_source | keys) == ["corpus"]
  and (.loss_by_source.corpus / .loss - 1 | fabs) < 1e-14)'

# ---- the devices agree ----
on_device cpu mixture.yaml cpu
on_device cuda mixture.yaml cuda
is cpu 'length == 4 and all(.[]; (.loss_by_source | keys_unsorted) == ["corpus", "other"]
  and (.loss_by_source | (.corpus - .other | fabs) > 1e-3 and .corpus > 0 and .other > 0))'
jq -se --slurpfile cuda cuda/trainer.jsonl 'all(.[]; . as $cpu | $cuda[.step - 1] as $other |
  all("corpus", "other"; ($cpu.loss_by_source[.] - $other.loss_by_source[.] | fabs) < 1e-3))' cpu/trainer.jsonl \
  >/dev/null || fail "the devices differ: $(jq -c '[.step, .loss_by_source]' {cpu,cuda}/trainer.jsonl)"
