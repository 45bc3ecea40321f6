#!/usr/bin/env bash
# A card that cannot be used, emulated: no driver or an old one, no device, a driver that answers with an error, a card
# that another process holds or whose memory others hold. Each program says what, where and how to fix it, with the right exit code; `auto` uses the CPU;
# `up` restarts what may pass and nothing else. A MIG slice works as a small card.
. "$PLM_ROOT/tests/support/shell/lib.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated
with_card() { PLM_EMULATED_CARD=$1 "${@:2}"; } # WORDS COMMAND…
cuda=(--set trainer.device=cuda)
all=68719476736 # bytes of the emulated card

# A checkpoint that other commands open.
expect 0 plm-pipeline up pipeline.yaml --run sound --set trainer.steps=2
model=sound/checkpoints/latest
head -n 8 corpus.fasta >some.fasta

# refused EXIT-CODE WORDS MESSAGE HINT: each program that asks for the card
refused() {
  local code=$1 words=$2 message=$3 hint=$4 of_command=$1
  [ "$code" -ne 6 ] || of_command=1 # only the stages tell what may pass
  expect "$code" with_card "$words" plm-trainer -c pipeline.yaml --run none "${cuda[@]}"
  says err "$message" && says err "$hint"
  expect "$code" with_card "$words" plm-evaluator -c pipeline.yaml --run sound --set evaluator.device=cuda
  says err "$message"
  expect "$of_command" with_card "$words" plm-pipeline embed some.fasta --checkpoint $model --device cuda --output none.npy
  says err "$message"
  [ ! -e none.npy ] || fail "$words: embeddings without a card"
  # the memory estimate of the card is printed all the same
  expect 0 with_card "$words" plm-trainer -c pipeline.yaml "${cuda[@]}" --dry-run
  says out "$message"
}
auto_device() { # WORDS LINES: `auto` uses the CPU and says why in so many lines
  with_card "$1" plm-trainer -c pipeline.yaml --set trainer.device=auto --dry-run --json >out 2>err ||
    fail "auto, $1: $(cat err)"
  jq -e '.device == "cpu"' out >/dev/null || fail "auto, $1: not on the CPU"
  [ "$(grep -c 'using the CPU instead of the CUDA device' err || true)" -eq "$2" ] || fail "auto, $1: $(cat err)"
}

# auto_run WORDS REASON: a run with `auto` trains on the CPU; it says why once, records it, and stays there
auto_run() {
  local name=auto-${1//[^a-z0-9]/-} steps
  for steps in 1 2; do
    expect 0 with_card "$1" plm-pipeline up pipeline.yaml --run "$name" --set trainer.device=auto --set trainer.steps=$steps
    [ "$(grep -c "using the CPU instead of the CUDA device: .*$2" "$name/logs/trainer.0.log")" -eq 1 ] ||
      fail "$1: not one line: $(cat "$name/logs/trainer.0.log")"
  done
  [ "$(grep -c "the run began on the CPU and stays there (.*$2.*trainer.device: cuda" "$name/logs/trainer.0.log")" -eq 1 ] ||
    fail "$1: the resume does not say why it is on the CPU: $(cat "$name/logs/trainer.0.log")"
  jq -e --arg why "$2" '.exact and .resolved.device == "cpu" and
    (.resolved.fallback | startswith("the CPU computes instead of the CUDA device: ") and contains($why))' \
    "$name/checkpoints/latest/trainer.json" >/dev/null || fail "$1: $(jq .resolved "$name/checkpoints/latest/trainer.json")"
}

refused 2 driver=0 "NVIDIA's driver is not installed" 'nvidia-smi must work: install a driver for CUDA 12.0'
auto_device driver=0 1
refused 2 driver=11080 "NVIDIA's driver is too old: it supports CUDA 11.8, and 12.0 is needed" 'update the driver'
auto_device driver=11080 1
auto_run driver=0 "NVIDIA's driver is not installed"
auto_run driver=11080 "NVIDIA's driver is too old"
refused 2 devices=0 'no CUDA device 0: no CUDA-capable device is detected' 'nvidia-smi -L.* MIG mode'
auto_device devices=0 0
jq -e '.resolved.fallback == ""' $model/trainer.json >/dev/null || fail "a fallback of a run that asked for the CPU"
touch held
refused 6 busy=held 'another process uses CUDA device 0, which is in exclusive mode' 'nvidia-smi -c DEFAULT'
auto_device busy=held 1
refused 1 used=$all 'no device memory for a buffer of [0-9]+ bytes: out of memory; 0.00 of 68.72 GB are free' \
  'nvidia-smi which processes use the device'

# The driver finds nothing wrong with itself or the card, but answers with an error that says little.
reports="CUDA device 0 cannot be used, because NVIDIA's driver reports: "
refused 1 count=unknown "${reports}unknown error" 'dmesg . grep NVRM.*nvidia-uvm must be loaded'
auto_device count=unknown 1
auto_run count=unknown "${reports}unknown error"
refused 1 open=initialization "${reports}initialization error" 'nvidia-uvm must be loaded'
auto_run open=initialization "${reports}initialization error"
refused 1 count=system_not_ready "${reports}system not yet initialized" 'systemctl status nvidia-fabricmanager'
auto_device count=system_not_ready 1
refused 2 count=driver_mismatch "${reports}system has unsupported display driver" 'have different versions.* restart the machine'
auto_device count=driver_mismatch 1

# Two runs on one card: the second one does not fit, and the first one is named.
expect 1 with_card used=$((all - 1500000000)) plm-trainer -c pipeline.yaml --run second "${cuda[@]}" \
  --set data.max_length=1024 --set trainer.batch_tokens=1048576 --set trainer.micro_batch_tokens=1048576
says err 'training takes .* GB of the device.s memory .*, but only 1.* of 68.72 GB are free'
says err '67.* GB are in use, most of it by other processes \(nvidia-smi shows them\); or trainer.micro_batch_tokens: [0-9]+ fits'
expect 0 with_card used=$((all - 1500000000)) plm-pipeline up pipeline.yaml --run second "${cuda[@]}" --set trainer.steps=2

# The reserve is in the estimate: what is free after it must hold the rest.
expect 0 plm-trainer -c pipeline.yaml "${cuda[@]}" --dry-run
says out 'kept free for kernels and graphs +1000.0 MB'
expect 0 plm-trainer -c pipeline.yaml "${cuda[@]}" --dry-run --json
jq -e '.reserve == 1e9 and .device_bytes > 1e9 and .fits' out >/dev/null || fail "the estimate has no reserve"
expect 0 with_card used=$((all - 900000000)) plm-trainer -c pipeline.yaml "${cuda[@]}" --dry-run --json
jq -e '.fits | not' out >/dev/null || fail "0.9 GB are enough for a reserve of 1 GB"
expect 0 plm-trainer -c pipeline.yaml --dry-run --json
jq -e '.reserve == 0' out >/dev/null || fail "a reserve on the CPU"

# A MIG slice: a small card with a name of its own.
expect 0 with_card 'name=NVIDIA_H100_80GB_HBM3_MIG_1g.10gb multiprocessors=1' plm-pipeline up pipeline.yaml \
  --run slice "${cuda[@]}" --set trainer.steps=2
expect 0 plm-pipeline up pipeline.yaml --run whole "${cuda[@]}" --set trainer.steps=2
jq -e '.resolved.processor == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"' slice/checkpoints/latest/trainer.json >/dev/null ||
  fail "the slice's name is not recorded"
cmp {slice,whole}/checkpoints/latest/model.safetensors || fail "a slice gives other bits than the card"

# A run on a card that is refused its card on resume leaves its newest checkpoint as it is. With `auto` it goes on on the
# CPU, says why and that it is not exact, and records the reason.
stays() { # EXIT-CODE WORDS MESSAGE
  expect "$1" with_card "$2" plm-trainer -c pipeline.yaml --run whole "${cuda[@]}" --set trainer.steps=3
  says err "$3"
  expect 0 plm-pipeline checkpoints whole/checkpoints/latest --verify
  [ "$(readlink whole/checkpoints/latest)" = step_00000002 ] || fail "$2: the newest checkpoint is another one"
}
stays 1 count=unknown "${reports}unknown error"
stays 2 driver=11080 "NVIDIA's driver is too old"
cp -r whole moved
expect 0 with_card count=unknown plm-pipeline up pipeline.yaml --run moved --set trainer.device=auto --set trainer.steps=3
[ "$(grep -c "using the CPU instead of the CUDA device: .*unknown error" moved/logs/trainer.0.log)" -eq 1 ] ||
  fail "not one line: $(cat moved/logs/trainer.0.log)"
says moved/logs/trainer.0.log 'not bit-exact: device was cuda, is cpu'
jq -e '(.exact | not) and .resolved.device == "cpu" and (.resolved.fallback | contains("unknown error"))' \
  moved/checkpoints/latest/trainer.json >/dev/null || fail "moved: $(jq .resolved moved/checkpoints/latest/trainer.json)"

# `up` ends at once if trying again would not help, ...
expect 2 with_card driver=11080 plm-pipeline up pipeline.yaml --run old "${cuda[@]}"
says err 'driver is too old'
# ... and tries again while another process holds the card.
with_card "busy=$PLM_TMP/held" plm-pipeline up pipeline.yaml --run waits "${cuda[@]}" --set trainer.steps=2 >up.log 2>&1 &
up=$!
wait_for 20 grep -q 'in exclusive mode' waits/logs/trainer.0.log
rm held
wait $up || fail "the run did not go on when the card was free: $(cat up.log)"
cmp {waits,whole}/checkpoints/latest/model.safetensors || fail "a run that had to wait has other bits"
touch held
expect 6 with_card "busy=$PLM_TMP/held" plm-pipeline up pipeline.yaml --run never "${cuda[@]}" --set trainer.restart=no
says err 'in exclusive mode'
