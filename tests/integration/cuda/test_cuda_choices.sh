#!/usr/bin/env bash
# Which way attention's backward pass takes on sm_90a is recorded, whether tuning found it or the environment forced it.
# A resume takes the recorded way and gives the same bits, also if tuning would find another one. A resume that is told
# to take the other way says that it is not exact. All emulated.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated PLM_EMULATED_CARD=capability=90 PLM_ALGORITHM_CACHE=''
export PLM_CUDA_RELU2=library # its choice: tests/trainer/tuning/test_tuning.c
log=$PLM_TMP/trainer.log
settings=(--set trainer.device=cuda --set trainer.precision=bf16 --set trainer.steps=3 --set trainer.checkpoint.every=1
  --set model.architecture=transformer --set data.max_length=256 --set trainer.batch_tokens=512
  --set trainer.micro_batch_tokens=512 --set model.hidden_size=64 --set model.num_hidden_layers=1)

# ways RUN: the recorded lines, without the shape
ways() { jq -r '.resolved.algorithms[]' "$1/checkpoints/latest/trainer.json" | sed -n 's/^attention_backward .* //p' | sort -u; }
kernels_are() {
  jq -e --arg kernels "$2" '.resolved.kernels == $kernels' "$1/checkpoints/latest/trainer.json" >/dev/null ||
    fail "$1: $(jq .resolved.kernels "$1/checkpoints/latest/trainer.json")"
}
whole() { # NAME: a whole run
  export PLM_EMULATED_TRACE=$PLM_TMP/$1.trace
  start_packer "$1"
  run_trainer "$1" "${settings[@]}" || fail "$1 ended with $?"
  stop_packer
}
# resume FROM NAME: a copy of the run continues from the checkpoint of step 2
resume() {
  : >"$log"
  cp -r "$1" "$2"
  rm -r "$2/checkpoints/step_00000003" "$2/DONE"
  ln -sfn step_00000002 "$2/checkpoints/latest"
  whole "$2"
}

works() { sed -n 's/^works //p' "$1.trace" | tail -n 1; }
algorithms() { jq -r '.resolved.algorithms[]' "$1/checkpoints/latest/trainer.json"; }

# ---- tuned ----
for seed in {1..8}; do # until tuning finds the one kernel faster
  export PLM_EMULATED_TUNING=$seed
  whole tuned
  [ "$(ways tuned)" != onepass ] || break
  rm -r tuned
done
[ -e tuned ] || fail "tuning never finds the one kernel faster"
kernels_are tuned 'attention sm90, backward tuned, relu2 library'
PLM_EMULATED_TUNING=$((seed + 1)) resume tuned tuned-again
same_run tuned tuned-again 3
! grep 'not bit-exact' "$log" || fail "the tuned way is not exact"

# ---- forced ----
# Both ways may have the same bits, so a step that takes the two kernels is known by its work items: one more.
export PLM_CUDA_ATTENTION=sm90
for way in onepass split; do
  export PLM_CUDA_ATTENTION_BACKWARD=$way
  whole $way
  resume $way $way-again
  same_run $way $way-again 3
  ! grep 'not bit-exact' "$log" || fail "$way again is not exact"
done
kernels_are onepass 'attention sm90, backward onepass, relu2 library'
kernels_are split 'attention sm90, relu2 library'
diff <(algorithms tuned) <(algorithms onepass) || fail "the forced way is not recorded as the tuned one is"
diff <(algorithms onepass | grep -v ^attention_backward) <(algorithms split) || fail "other products"
[ "$(works split-again)" -eq $(($(works onepass-again) + 1)) ] || fail "the two ways are the same"
[ "$(works tuned-again)" -eq "$(works onepass-again)" ] || fail "a resume takes another way than the recorded one"

resume onepass other # with two kernels
grep -q 'not bit-exact: CUDA kernels was attention sm90, backward onepass, relu2 library, is attention sm90, relu2 library' "$log" ||
  fail "the other way is not named: $(cat "$log")"
grep -q 'not bit-exact: .*the saved algorithms want "onepass" for attention_backward.*PLM_CUDA_ATTENTION_BACKWARD forbids' "$log" ||
  fail "the variable is not named: $(cat "$log")"
jq -e '.exact | not' other/checkpoints/latest/trainer.json >/dev/null || fail "the other way calls itself exact"
