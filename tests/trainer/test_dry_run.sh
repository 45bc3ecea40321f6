#!/usr/bin/env bash
# plm-trainer --dry-run: the whole memory estimate, of one process on the CPU, and of ranks on a device without its backend.
# Only what the machine decides is left out. Both forms have the same numbers (test_dry_run_fields.c).
. "$PLM_ROOT/tests/support/shell/trainer.sh"
cat >pipeline.yaml <<YAML
version: 1
run: run
corpus: corpus
network: {credit_bytes: 100000000}
data: {max_length: 512}
model: {architecture: unet, hidden_size: 512, num_attention_heads: 8, num_hidden_layers: 4}
metrics: {norms: 3}
trainer: {batch_tokens: 16384, micro_batch_tokens: 1024, threads: 1, precision: fp32, ema: 0.9, shares: 8}
YAML
ranks=(--set trainer.ranks=4 --set 'trainer.hosts=[a:2,b:2]')
cpu=(--set trainer.device=cpu)
cuda=(--set trainer.device=cuda)
export PLM_CUDA_LIBRARY=$PLM_TMP/none/libplm_cuda.so

# estimate [ARG...]: the text without what depends on the machine
estimate() {
  expect 0 plm-trainer -c pipeline.yaml --dry-run "$@"
  sed -E 's/^(free +)[0-9.]+ MB of [0-9.]+$/\1FREE MB of TOTAL/' out
}
# numbers [ARG...]: the lines KEY VALUE of the JSON without what depends on the machine
numbers() {
  expect 0 plm-trainer -c pipeline.yaml --dry-run --json "$@"
  jq -r 'del(.level, .products, .bf16_gain, .int8_gain, .free_bytes, .total_bytes) | .owner_imbalance |= (. * 1e6 | round / 1e6)
    | to_entries[] | "\(.key) \(.value)"' out
}
# same WHAT: compares ./got with ./wanted
same() {
  diff wanted got >difference || fail "$1: $(cat difference)"
}

estimate "${cpu[@]}" >got
cat >wanted <<'END'
parameters (number)                          8718387
parameters, fp32                             34.9 MB
weights, as products read them                0.0 MB
gradients, fp32                              34.9 MB
sums of shares, fp32                        104.6 MB
moments and average                          71.1 MB
optimizer scratch                             6.7 MB
copy of parameters, for norms                34.9 MB
activations                                 118.7 MB
workspace                                    25.1 MB
attention masks                               0.0 MB
inputs of two steps                           0.6 MB
inputs and masks, host                        0.7 MB
transfers between ranks, host                 0.0 MB
snapshot for checkpoints, host              105.9 MB
chunks in flight (at most), host            100.0 MB
total                                       638.1 MB
free                                      FREE MB of TOTAL
largest trainer.micro_batch_tokens that fits: 2048
END
same "one process"

estimate "${cuda[@]}" "${ranks[@]}" >got
cat >wanted <<'END'
ranks                                              4 on 2 hosts, in groups of 2
largest part of Muon's work                     1.00 times the mean
sent by a rank within its group              42.2 MB in a step
sent by a rank to other groups               21.2 MB in a step
parameters (number)                          8718387
parameters, fp32                             34.9 MB
weights, as products read them                0.0 MB
gradients, fp32                              34.9 MB
sums of shares, fp32                         34.9 MB
exchange between ranks                       50.3 MB
moments and average                          20.7 MB
copy of parameters, for norms                 9.7 MB
activations                                 118.7 MB
workspace                                    22.0 MB
attention masks                               0.0 MB
inputs of two steps                           0.2 MB
kept free for kernels and graphs           1000.0 MB
inputs and masks, host                        0.2 MB
transfers between ranks, host                33.6 MB
snapshot for checkpoints, host              105.9 MB
chunks in flight (at most), host            100.0 MB
total on the device                        1326.2 MB
total on the host                           239.7 MB
not counted, because the CUDA backend was not found: optimizer scratch and the backend's own memory
the size of the device's memory is unknown: the CUDA backend was not found
END
same "ranks on devices without their backend"

numbers "${cpu[@]}" >got
cat >wanted <<'END'
device cpu
precision fp32
parameter_count 8718387
trained_count 8718387
ranks 1
hosts 1
group_size 1
owner_imbalance 1
sent_in_group 0
sent_on_rail 0
parameters 34874112
weights 0
gradients 34874112
shares 104622336
exchange 0
optimizer 71067904
scratch 6684672
norms 34874112
activations 118652928
workspace 25127168
masks 16768
inputs 608384
reserve 0
inputs_host 739968
transfers 0
snapshot 105942016
credit 100000000
backend 0
device_bytes 431402496
host_bytes 206681984
total 638084480
partial false
fits true
largest_micro_batch_tokens 2048
END
same "the numbers of one process"

jq -e '.free_bytes > 0 and .free_bytes <= .total_bytes and (.products | length > 0)' out >/dev/null ||
  fail "the machine: $(cat out)"
level=$("$PLM_BUILD/tests/processors/levels/tool_levels" | sed -n 's/^has //p' | head -n 1)
[ "$(jq -r .level out)" = "$level" ] || fail "level: $(cat out)"

numbers "${cuda[@]}" "${ranks[@]}" --set metrics.norms=0 >got
cat >wanted <<'END'
device cuda
precision fp32
parameter_count 8718387
trained_count 8718387
ranks 4
hosts 2
group_size 2
owner_imbalance 1.000007
sent_in_group 42214144
sent_on_rail 21242624
parameters 34874112
weights 0
gradients 34874112
shares 34874112
exchange 50331648
optimizer 20736256
scratch 0
norms 0
activations 118652928
workspace 21981440
masks 16768
inputs 166016
reserve 1000000000
inputs_host 197568
transfers 33554432
snapshot 105942016
credit 100000000
backend 0
device_bytes 1316507392
host_bytes 239694016
total 1556201408
partial true
unknown the CUDA backend was not found
END
same "the numbers of ranks on devices"

# a mixture keeps the losses of a step's chunks, and of a micro-batch's; each rank, also those of all ranks
sed 's/^corpus: .*/corpus: [{path: a}, {path: b}]/' pipeline.yaml >mixture.yaml
inputs() { # inputs FILE [ARG...]: bytes on the device and on the host
  expect 0 plm-trainer -c "$1" --dry-run --json "${cpu[@]}" "${@:2}"
  jq -r '"\(.inputs) \(.inputs_host)"' out
}
more() { # more [ARG...]: the bytes that a mixture takes beyond those of one corpus
  local one mixed
  read -ra one <<<"$(inputs pipeline.yaml "$@")"
  read -ra mixed <<<"$(inputs mixture.yaml "$@")"
  echo $((mixed[0] - one[0])) $((mixed[1] - one[1]))
}
chunks=32 micro=2 ranks_chunks=8 chunk=24 # chunks of a step, of a micro-batch, of a rank; bytes of a chunk on the host
[ "$(more)" = "$((8 * (chunks + micro))) $(((8 + chunk) * chunks))" ] || fail "a mixture takes $(more) bytes more"
[ "$(more "${ranks[@]}")" = "$((8 * (ranks_chunks + micro))) $(((8 + chunk) * ranks_chunks + chunk * chunks))" ] ||
  fail "a mixture of ranks takes $(more "${ranks[@]}") bytes more"

printf 'run: run\nmodel: {preset: 8M}\n' >preset.yaml
expect 0 plm-trainer -c preset.yaml --dry-run "${cpu[@]}"
says out '^parameters \(number\) +7496353$'
expect 0 plm-trainer -c preset.yaml --dry-run "${cpu[@]}" --set model.num_hidden_layers=5 # without 12 * 320^2
says out '^parameters \(number\) +6267553$'
[ ! -e run ] || fail "a dry run made the folder of the run"

# frozen weights have neither gradients nor moments and, in bf16, no fp32 values: ESM-2 3B whose head is trained
cat >frozen.yaml <<YAML
version: 1
run: run
corpus: corpus
data: {max_length: 1024}
model: {architecture: esm2, hidden_size: 2560, num_attention_heads: 40, num_hidden_layers: 36, intermediate_size: 10240}
trainer: {device: cuda, precision: bf16, batch_tokens: 8192, micro_batch_tokens: 1024, freeze: {trunk: true}}
YAML
expect 0 plm-trainer -c frozen.yaml --dry-run --json
head=$((2560 * 2560 + 3 * 2560 + 33)) # dense with its bias, the norm, and the bias of the logits
jq -e --argjson head "$head" '.parameter_count == 2839004193 and .trained_count == $head
  and .weights < 2 * .parameter_count + 1e5 and .parameters < 4 * ($head + 2e6)
  and .gradients < 4.1 * $head and .optimizer < 8.1 * $head and .device_bytes < 7.1e9' out >/dev/null ||
  fail "a frozen trunk: $(cat out)"
expect 0 plm-trainer -c frozen.yaml --dry-run
grep -q "^of these, trained  *$head$" out || fail "the text of a frozen trunk: $(cat out)"

# with adapters, the rest is frozen in the same way: LoRA of ESM-2 3B fits a card of 24 GB
expect 0 plm-trainer -c frozen.yaml --dry-run --json --set trainer.freeze.trunk=false --set trainer.lora.rank=8 \
  --set 'trainer.lora.targets=[q, k, v, o, up, down]' --set trainer.lora.dropout=0.05 --set trainer.recompute=block \
  --set trainer.micro_batch_tokens=4096
adapters=$((36 * 8 * (8 * 2560 + 2 * (2560 + 10240)))) # in and out of four products of attention and two of the MLP
jq -e --argjson adapters "$adapters" '.parameter_count == 2839004193 + $adapters
  and .trained_count == $adapters and .weights < 2 * .parameter_count + 1e5
  and .parameters < 4 * ($adapters + 2e6) and .gradients < 4 * ($adapters + 2560 * 2560 + 1e5)
  and .optimizer < 8.1 * $adapters and .device_bytes < 24e9' out >/dev/null || fail "adapters: $(cat out)"
