# shellcheck shell=bash
# A corpus and a run that are small enough for the emulated CUDA backend. Sourced after lib.sh; makes
# corpus/ and pipeline.yaml and defines on_cuda COMMAND…
emulated=$PLM_BUILD/tests/lib/libplm_cuda_emulated.so
# Each process would find other algorithms, as on a card. Runs with the same bits share what the first one finds.
export PLM_ALGORITHM_CACHE=$PLM_TMP/algorithms
on_cuda() { PLM_CUDA_LIBRARY=$emulated "$@"; }

small_fasta corpus.fasta 120
plm-pipeline ingest corpus.fasta --corpus corpus --split train=0.8,valid=0.1,test=0.1 -q
# lr_scalar is small: the gradient of a scale before a norm is only rounding, and Adam divides it by its size
cat >pipeline.yaml <<END
version: 1
run: run
seed: 7
corpus: corpus
network: {${loopback:?}, wait_packers_s: 300}
data: {max_length: 64}
model:
  architecture: unet
  hidden_size: 32
  num_attention_heads: 1
  num_hidden_layers: 2
  num_unet_layers: 2
  num_extra_layers: 1
trainer:
  device: cpu
  threads: 1
  precision: fp32
  steps: 4
  batch_tokens: 128
  micro_batch_tokens: 64
  optimizer: {lr_scalar: 0.0005}
  ema: 0.9
  schedule: {warmup_steps: 2, cooldown_steps: 2}
  checkpoint: {every: 2, keep_last: 8}
evaluator: {device: cpu, max_tokens: 500}
END
