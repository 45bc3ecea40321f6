#!/usr/bin/env bash
# device: cuda in the real programs, on the emulated backend: losses and embeddings equal the CPU's, and
# messages say why a backend cannot be used.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"

# ---- the same losses on both ----
for architecture in transformer unet patch_unet; do
  settings=(--set "model.architecture=$architecture" --set trainer.steps=2)
  [ $architecture != patch_unet ] || settings+=(--set model.hidden_size=64) # the least that it takes
  expect 0 plm-pipeline up pipeline.yaml --run "cpu-$architecture" "${settings[@]}"
  expect 0 on_cuda plm-pipeline up pipeline.yaml --run "cuda-$architecture" "${settings[@]}" \
    --set trainer.device=cuda
  jq -e '.resolved.device == "cuda" and .exact' "cuda-$architecture/checkpoints/latest/trainer.json" >/dev/null ||
    fail "the run was not on the emulated device"
  jq -se --slurpfile cuda "cuda-$architecture/trainer.jsonl" \
    'length == 2 and all(range(2) as $i | .[$i].loss / $cuda[$i].loss - 1 | fabs; . < 1e-5)' \
    "cpu-$architecture/trainer.jsonl" >/dev/null || {
    jq -c '[.step, .loss]' "cpu-$architecture/trainer.jsonl" "cuda-$architecture/trainer.jsonl" >&2
    fail "$architecture: losses differ by more than 1e-5 of theirs"
  }
done

# ---- the tasks ----
folder=cuda-unet/checkpoints/latest
head -n 8 corpus.fasta >some.fasta
embed() { # DEVICE OUTPUT [OPTION…]
  plm-pipeline embed some.fasta --checkpoint "$folder" --device "$1" --threads 1 --output "$2" "${@:3}"
}
expect 0 embed cpu cpu.npy
expect 0 on_cuda embed cuda cuda.npy
[ "$(tail -c +129 cpu.npy | md5sum)" != "$(tail -c +129 cuda.npy | md5sum)" ] || fail "both on the CPU"
floats() { tail -c +129 "$1" | od -An -v -w4 -t f4; }
[ "$(floats cpu.npy | wc -l)" -eq $((4 * 32)) ] || fail "not 4 vectors of 32"
paste <(floats cpu.npy) <(floats cuda.npy) |
  awk '{d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-4)) exit 1}' || fail "embeddings differ by more than 1e-4"
expect 2 embed gpu gpu.npy
says err '--device must be auto, cpu or cuda, not "gpu"'

# ---- messages about unusable backends ----
version=$(plm-trainer --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')
LC_ALL=C sed "s/\x00$version\x00/\x00${version//[0-9]/x}\x00/g" "$emulated" >other.so
echo "no library" >text.so
ldd "$PLM_BIN/plm-trainer" | awk '$1 ~ /^libm\./ {print $3}' | xargs -I{} ln -s {} strange.so
with() { PLM_CUDA_LIBRARY=$1 "${@:2}"; }
device_of() { plm-trainer -c pipeline.yaml --set "trainer.device=$1" --dry-run --json | jq -r .device; }
refused() { # LIBRARY REGEX
  expect 2 with "$1" embed cuda none.npy
  says err "$2"
  expect 2 with "$1" plm-trainer -c pipeline.yaml --run none --set trainer.device=cuda
  says err "$2"
  expect 2 with "$1" plm-evaluator -c pipeline.yaml --run none --set evaluator.device=cuda
  says err "$2"
  expect 0 with "$1" device_of auto
  says out '^cpu$'
  [ "$(grep -c 'using the CPU instead of the CUDA device' err)" -eq 1 ] || fail "auto, $1: not one line"
}
refused missing.so 'missing.so: the CUDA backend was not found'
refused text.so 'text.so: the CUDA backend cannot be loaded'
refused strange.so 'strange.so: this is not a backend of plm-pipeline'
refused other.so 'other.so: it is from another build than this program'
says err 'run .make. again'

# ---- the memory estimate ----
estimate() { plm-trainer -c pipeline.yaml --set trainer.device=cuda --dry-run "$@"; }
expect 0 on_cuda estimate
for row in 'parameters, fp32' 'gradients' 'moments' 'scratch' 'activations' 'workspace' 'own' 'snapshot' \
  'total on the device' 'free' 'largest trainer.micro_batch_tokens that fits: 128'; do says out "$row"; done
# the emulated device has 64 GiB
expect 0 on_cuda estimate --json --set data.max_length=1024 --set trainer.batch_tokens=104857600 \
  --set trainer.micro_batch_tokens=104857600
mv out large.json
jq -e '.device == "cuda" and (.fits | not) and .device_bytes > .total_bytes and
  .total_bytes == 68719476736 and .largest_micro_batch_tokens > 1024 and .largest_micro_batch_tokens < 104857600' \
  large.json >/dev/null || fail "the estimate of a micro-batch that is too large: $(cat large.json)"
largest=$(jq .largest_micro_batch_tokens large.json)
expect 1 on_cuda plm-trainer -c pipeline.yaml --run large --set trainer.device=cuda --set data.max_length=1024 \
  --set trainer.batch_tokens=104857600 --set trainer.micro_batch_tokens=104857600
says err 'training takes .* GB of the device.s memory \(activations: .*\), but only .* are free'
says err "trainer.micro_batch_tokens: $largest fits; trainer.recompute: block takes less"
# Without a device the estimate of one is printed, and says what it does not know.
expect 0 with missing.so estimate
says out 'not counted, because the CUDA backend was not found'
says out 'the size of the device.s memory is unknown: the CUDA backend was not found'
expect 0 with other.so estimate --json
jq -e '.device == "cuda" and .partial and .activations > 0 and (has("fits") | not)' out >/dev/null ||
  fail "the estimate without a device"
expect 0 on_cuda plm-pipeline up pipeline.yaml --run planned --set trainer.device=cuda --dry-run
says out 'trainer .* MB for [0-9]+ parameters, on the CUDA device \(.* MB are free\); .* MB on the host'
says out 'this fits; largest trainer.micro_batch_tokens that fits: 128'

# ---- auto ----
expect 0 on_cuda device_of auto
says out '^cuda$'
expect 0 on_cuda device_of cpu
says out '^cpu$'
if compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ]; then exit 0; fi
expect 0 device_of auto
says out '^cpu$'
[ ! -s err ] || fail "auto prints something although there is no device: $(cat err)"
