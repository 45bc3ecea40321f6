#!/usr/bin/env bash
# What the backend does without: CUDA graphs that cannot be made, and kernels for sm_90a whose check fails. The run
# goes on with the same bits as a run that was told to do without, and says so once. All emulated.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated
log=$PLM_TMP/trainer.log
settings=(--set trainer.device=cuda --set trainer.steps=2)

# train NAME [ARG...]: a whole run, whose log is $log
train() {
  : >"$log"
  start_packer "$@"
  run_trainer "$@" || fail "$1 ended with $?"
  stop_packer
}

# ---- graphs ----
PLM_EMULATED_TRACE=$PLM_TMP/recorded train whole "${settings[@]}"
! grep -q 'CUDA graphs' "$log" || fail "graphs fail although nothing is wrong"
grep -q '^replay' recorded || fail "nothing was replayed"
for where in call instantiate; do # all of them: tests/kernels/test_ops_failures.c
  PLM_EMULATED_TRACE=$PLM_TMP/trace-$where PLM_EMULATED_CARD=capture=$where train "without-$where" "${settings[@]}"
  [ "$(grep -c 'cannot be recorded as CUDA graphs, so they run without: device 0: ' "$log")" -eq 1 ] ||
    fail "$where: not one line says so: $(cat "$log")"
  ! grep -q '^replay' "trace-$where" || fail "$where: something was replayed"
  same_run whole "without-$where" 2
  ! grep -q 'not bit-exact' "$log" || fail "$where: not exact"
done

# ---- kernels whose check fails ----
h100=(--set trainer.device=cuda --set trainer.steps=1 --set trainer.precision=bf16)
PLM_ALGORITHM_CACHE='' PLM_EMULATED_CARD=capability=90 train sm90 "${h100[@]}" # or the next runs would not check
PLM_CUDA_ATTENTION=mma PLM_CUDA_RELU2=library PLM_EMULATED_CARD=capability=90 train told "${h100[@]}"
PLM_EMULATED_CARD="capability=90 products=fault" train fault "${h100[@]}"
[ "$(grep -c 'attention runs on mma.sync, because the check of the sm_90a kernels failed' "$log")" -eq 1 ] ||
  fail "not one line for attention: $(cat "$log")"
[ "$(grep -c 'products and relu2 run one after the other, because the check' "$log")" -eq 1 ] ||
  fail "not one line for products: $(cat "$log")"
same_run told fault 1
resolved() { jq -e "$2" "$1/checkpoints/latest/trainer.json" >/dev/null || fail "$1: $(jq .resolved "$1/checkpoints/latest/trainer.json")"; }
resolved sm90 '.resolved | .isa == "sm_90a" and .kernels == "attention sm90, backward tuned, relu2 tuned" and .fallback == ""'
resolved told '.resolved | .kernels == "attention mma, relu2 library" and .fallback == ""'
resolved fault '.resolved | .isa == "sm_90" and .kernels == "attention mma, relu2 library" and
  (.fallback | startswith("attention runs on mma.sync: ") and contains("; products and relu2 run one after the other: "))'
resolved whole '.resolved.kernels == ""'

# A run that resumes with other kernels says that it is not exact.
: >"$log"
start_packer sm90
PLM_EMULATED_CARD="capability=90 products=wrong" run_trainer sm90 "${h100[@]}" --set trainer.steps=2 || fail "the resume ended with $?"
stop_packer
grep -q 'not bit-exact.*\(instruction set\|CUDA kernels\)' "$log" || fail "other kernels are not noticed: $(cat "$log")"
