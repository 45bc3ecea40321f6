#!/usr/bin/env bash
# Compares real runs with an independent trainer (oracle/). From step_00000000, `trace` and the sequences
# it computes the same masks, schedules and losses over twenty steps, and the same final weights. A fault
# planted in the oracle must be noticed, each in a run that uses what it breaks; otherwise the comparison
# would be blind.
. "$PLM_ROOT/tests/support/shell/lib.sh"

oracle=$PLM_BUILD/tests/integration/oracle/tool_oracle
small_corpus corpus
plm-pipeline corpus corpus --fasta --split train >train.fasta

# train NAME: trains NAME.part, completed by the lines here, to the end
train() {
  cat - "$1.part" >"$1.yaml" <<END
version: 1
run: $1
seed: 55834574855 # above 32 bits: both words of the key count
corpus: corpus
network: {$loopback, wait_packers_s: 300}
END
  expect 0 plm-pipeline up "$1.yaml" trainer packer
  plm-pipeline config "$1/pipeline.yaml" --json >"$1.settings"
  for step in {1..20}; do plm-pipeline trace --run "$1" --step "$step" --json; done >"$1.trace"
}

follow() { "$oracle" "$1" "$1.settings" "$1.trace" train.fasta "${@:2}"; }

# agrees NAME: the oracle must find the same run
agrees() { follow "$1" >out 2>err || fail "$1 $(cat err)"; echo "$1: $(cat out)"; }

# sees NAME FAULT REGEX: the oracle with a planted fault must find a difference, and say where
sees() {
  expect 1 follow "$1" --plant "$2"
  says err "^differs: $3"
  echo "$1, planted $2: $(cat err)"
}

cat >patch_unet.part <<'END'
data: {max_length: 64}
model:
  architecture: patch_unet
  hidden_size: 64
  num_attention_heads: 2
  num_unet_layers: 4
  num_extra_layers: 1
  token_dropout: true
  attention: {pattern: [document, document+local], window: {start: 256, end: 24, steps: 12}}
trainer:
  {device: cpu, threads: 1, shares: 2, precision: fp32, steps: 20, batch_tokens: 256, micro_batch_tokens: 128,
   objective: mlm,
   masking: {starting_mask_rate: 0.4, mask_rate: 0.2, mask_rate_steps: 12, random_fraction: 0.1, keep_fraction: 0.1},
   optimizer: {momentum_warmup_steps: 10, weight_decay: 0.1},
   schedule: {name: wsd, warmup_steps: 4, cooldown_steps: 8, min_lr_fraction: 0.1},
   checkpoint: {every: 20}}
END
cat >unet.part <<'END'
data: {max_length: 64, truncate: split}
model:
  architecture: unet
  hidden_size: 64
  num_attention_heads: 4
  num_hidden_layers: 4
  attention: {pattern: [document, document+block], block: 16}
trainer:
  {device: cpu, threads: 1, shares: 2, precision: fp32, steps: 20, batch_tokens: 256, micro_batch_tokens: 128,
   objective: masked_diffusion,
   masking: {mask_rate: 0.3, mlm_warmup_steps: 4},
   loss: {z_loss: 0.001},
   optimizer: {scale: spectral, lr_hidden: 0.01, lr_scalar: 0.001, momentum_warmup_steps: 0},
   schedule: {name: cosine, warmup_steps: 4, min_lr_fraction: 0.0},
   clip: {norm: 0.5}, ema: 0.9,
   checkpoint: {every: 20}}
END
cat >transformer.part <<'END'
data: {max_length: 64, packing: next_fit}
model:
  architecture: transformer
  hidden_size: 64
  num_attention_heads: 2
  num_hidden_layers: 3
  tie_embeddings: true
  soft_logit_cap: 0.0
  attention: {pattern: [document+causal]}
trainer:
  {device: cpu, threads: 1, precision: fp32, steps: 20, batch_tokens: 256, micro_batch_tokens: 256,
   objective: causal,
   loss: {label_smoothing: 0.1},
   optimizer: {name: adamw, lr_hidden: 0.002, weight_decay: 0.1},
   schedule: {name: linear, warmup_steps: 5},
   checkpoint: {every: 20}}
END

for run in patch_unet unet transformer; do
  train "$run"
  agrees "$run"
done

sees patch_unet seed 'initial plm\.embeddings\.weight'
sees patch_unet position 'step 1: loss'
sees patch_unet chunk 'step 1: loss'
sees patch_unet residue 'step 1: loss'
sees patch_unet value-mix 'step [0-9]+: (loss|grad_norm)'
sees patch_unet nesterov 'step [0-9]+: (loss|grad_norm)'
sees unet rate 'step 5: mask_rate'
sees unet correction 'step 2: (loss|grad_norm)'
sees transformer last-target 'step 1: loss'
