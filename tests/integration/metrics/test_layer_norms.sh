#!/usr/bin/env bash
# metrics.norms: norms by layer in every second step. They change no bit of the run, and are the same after a kill, with
# two ranks and (nearly) on the emulated CUDA device. That the numbers are right is what tests/golden/test_training.py
# compares with PyTorch; that TensorBoard gets them, test_step_report.c.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
small_fasta text.fasta 300
plm-pipeline ingest text.fasta --corpus corpus --split train=0.8,valid=0.1,test=0.1 -q
trainer_config unet
common=(--set trainer.micro_batch_tokens=128 --set trainer.threads=1 --set trainer.shares=4 --set model.hidden_size=256
  --set model.num_attention_heads=4 --set trainer.steps=6 --set trainer.checkpoint.every=3)
norms=("${common[@]}" --set metrics.norms=2)

# same_lines RUN RUN: both have the same exact metrics, norms included
same_lines() {
  diff <(exact_metrics "$1/trainer.jsonl") <(exact_metrics "$2/trainer.jsonl") || fail "$1 and $2 differ"
}
without_norms() { exact_metrics "$1" | jq -cS 'del(.gradient_norms, .weight_norms, .update_norms)'; }

# ---- the same run with and without ----
start_packer plain "${common[@]}"
run_trainer plain "${common[@]}" || fail "without norms: $?"
stop_packer
start_packer measured "${norms[@]}"
run_trainer measured "${norms[@]}" || fail "with norms: $?"
stop_packer
diff <(without_norms plain/trainer.jsonl) <(without_norms measured/trainer.jsonl) || fail "norms change the metrics"
for file in model optimizer; do
  cmp {plain,measured}/checkpoints/step_00000006/$file.safetensors || fail "norms change $file"
done
jq -se '[.[] | select(.gradient_norms) | .step] == [2, 4, 6]
  and all(.[]; (.gradient_norms == null) == (.update_norms == null) and .accuracy >= 0 and .accuracy <= 1)
  and ([.[] | select(.gradient_norms) | (([.gradient_norms[]] | map(. * .) | add | sqrt) / .grad_norm - 1) | fabs]
    | max < 1e-9)
  and all(.[] | select(.gradient_norms); (.weight_norms | keys_unsorted) == (.update_norms | keys_unsorted)
    and (.weight_norms | has("embeddings") and has("encoder.0") and has("lm_head"))
    and all(.update_norms[]; . > 0))' measured/trainer.jsonl >/dev/null ||
  fail "not the norms of steps 2, 4 and 6: $(cat measured/trainer.jsonl)"

# ---- killed and resumed ----
start_packer killed "${norms[@]}"
start_trainer_for killed 4 "${norms[@]}"
kill_trainer
run_trainer killed "${norms[@]}" || fail "resumed: $?"
stop_packer
same_lines measured killed

# ---- two ranks ----
if has_mpi; then
  . "$PLM_ROOT/tests/support/shell/ranks.sh"
  start_packer two "${norms[@]}"
  run_ranks 2 two "${norms[@]}" || fail "two ranks ended with $?"
  stop_packer
  same_lines measured two
fi

# ---- the CUDA backend, emulated: it adds in another order, so the last digits differ ----
mkdir emulated && cd emulated || exit 1
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
on_device() { # DEVICE RUN [ARG...]
  expect 0 on_cuda plm-pipeline up pipeline.yaml trainer packer --run "$2" --set "trainer.device=$1" --set trainer.steps=4 "${@:3}"
}
on_device cpu cpu --set metrics.norms=2
on_device cuda cuda --set metrics.norms=2
on_device cuda without
diff <(without_norms without/trainer.jsonl) <(without_norms cuda/trainer.jsonl) || fail "norms change the metrics on CUDA"
cmp {without,cuda}/checkpoints/step_00000004/model.safetensors || fail "norms change the weights on CUDA"
jq -se --slurpfile cuda cuda/trainer.jsonl 'length == 4 and all(.[1], .[3]; . as $cpu | $cuda[.step - 1] as $other |
  ($cpu.accuracy - $other.accuracy | fabs) < 0.05 and
  all("gradient_norms", "weight_norms", "update_norms"; . as $kind | ([$cpu[$kind][]] | max) as $largest |
    ($cpu[$kind] | keys_unsorted) == ($other[$kind] | keys_unsorted) and
    all($cpu[$kind] | to_entries[]; (.value - $other[$kind][.key] | fabs) <= 1e-3 * .value + 1e-4 * $largest)))' \
  cpu/trainer.jsonl >/dev/null || fail "norms on CUDA differ: $(jq -c '[.step, .accuracy, .gradient_norms, .weight_norms, .update_norms]' {cpu,cuda}/trainer.jsonl)"
