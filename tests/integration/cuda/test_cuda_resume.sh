#!/usr/bin/env bash
# A run with device: cuda on the emulated backend is killed and resumed: the bits are the same. Moved to
# the CPU, it continues, says so and is no longer exact.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated
whole=$PLM_TMP/whole killed=$PLM_TMP/killed moved=$PLM_TMP/moved

start_packer "$whole"
run_trainer "$whole" --set trainer.device=cuda || fail "the run ended with $?"
stop_packer

start_and_kill "$killed" 3 --set trainer.device=cuda # one step after the checkpoint
cp -r "$killed" "$moved"
# `auto` takes the device that the run began on
run_trainer "$killed" --set trainer.device=auto || fail "the resumed run ended with $?"
stop_packer
same_run "$whole" "$killed" 4
jq -e '.exact and .resolved.device == "cuda" and .resolved.processor == "emulation"' \
  "$killed/checkpoints/latest/trainer.json" >/dev/null || fail "not exact on the device after the resume"
! grep 'not bit-exact' trainer.log || fail "an exact resume is called inexact"

# Without the device: the CPU, with one line about the device and none about what follows from it.
unset PLM_CUDA_LIBRARY
start_packer "$moved"
: >trainer.log
run_trainer "$moved" --set trainer.device=cpu --set trainer.threads=2 || fail "the moved run ended with $?"
stop_packer
says trainer.log 'not bit-exact: device was cuda, is cpu'
[ "$(grep -c 'not bit-exact' trainer.log)" -eq 1 ] || fail "more than the device is said"
jq -e '(.exact | not) and .resolved.device == "cpu"' "$moved/checkpoints/latest/trainer.json" >/dev/null ||
  fail "the moved run calls itself exact"
jq -se --slurpfile whole "$whole/trainer.jsonl" \
  'length == 4 and all(range(4) as $i | .[$i].loss / $whole[$i].loss - 1 | fabs; . < 1e-5)' \
  "$moved/trainer.jsonl" >/dev/null || fail "the moved run trains something else"
