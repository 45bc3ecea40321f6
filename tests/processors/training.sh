#!/usr/bin/env bash
# A packer and a trainer of a tiny model under qemu, and again on this machine: the losses agree up to
# rounding. Called by processors.sh with the emulator as arguments; PLM_EMULATED_BUILD has the emulated
# programs, PLM_BIN this machine's.
. "${PLM_ROOT:?}/tests/support/shell/lib.sh"

steps=3
small_corpus corpus 150
small_config pipeline.yaml patch_unet

# train RUN BIN [EMULATOR...]
train() {
  local run=$1 bin=$2 packer status=0
  shift 2
  # A slow machine takes its time to start; --set says so before anything else does.
  local set=(--set network.wait_packers_s=300 --set trainer.steps="$steps" --set trainer.threads=2
    --set model.num_unet_layers=2 --set data.max_length=128 --set trainer.batch_tokens=128
    --set trainer.micro_batch_tokens=128
    --set trainer.checkpoint.every="$steps")
  "$@" "$bin/plm-packer" -c pipeline.yaml --corpus corpus --run "$run" "${set[@]}" >"$run.packer.log" 2>&1 &
  packer=$!
  "$@" "$bin/plm-trainer" -c pipeline.yaml --run "$run" "${set[@]}" >"$run.trainer.log" 2>&1 || status=$?
  kill "$packer" 2>/dev/null || true
  wait "$packer" || true
  [ "$status" -eq 0 ] || { tail -n 30 "$run.packer.log" "$run.trainer.log" >&2; fail "$run ended with $status"; }
}

train native "$PLM_BIN"
train emulated "$PLM_EMULATED_BUILD/bin" "$@"
for run in native emulated; do
  jq -r '"\(.step) \(.loss) \(.grad_norm) \(.tokens)"' $run/trainer.jsonl >$run.steps
done
[ "$(wc -l <native.steps)" -eq "$steps" ] || fail "the native run has $(wc -l <native.steps) of $steps steps"
# The same tokens; loss and norm differ by roundings, which every update passes on.
paste -d ' ' native.steps emulated.steps | awk -v steps=$steps '
  function off(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (a < 0 ? -a : a) }
  { d = off($2, $6); if (d > loss) loss = d; d = off($3, $7); if (d > norm) norm = d }
  $1 != $5 || $4 != $8 || $6 + 0 != $6 { print "step " $1 ": " $0; bad = 1 }
  END {
    if (NR != steps || bad || loss > 1e-4 || norm > 1e-2) { print "the runs differ"; failed = 1 }
    printf "%d steps, loss within %.1e and gradient norm within %.1e of this machine\n", NR, loss, norm
    exit failed
  }'
