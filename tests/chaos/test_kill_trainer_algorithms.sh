#!/usr/bin/env bash
# The product algorithms survive a kill. On the emulated CUDA backend PLM_EMULATED_TUNING seeds what
# tuning finds: a resume that would find other algorithms takes those of its checkpoint and gives the same
# bits.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
export PLM_CUDA_LIBRARY=$PLM_BUILD/tests/lib/libplm_cuda_emulated.so
whole=$PLM_TMP/whole killed=$PLM_TMP/killed other=$PLM_TMP/other
small_corpus corpus
trainer_config unet fp32
set -- --set trainer.device=cuda --set trainer.steps=3 --set trainer.checkpoint.every=1 \
  --set model.hidden_size=32 --set data.max_length=64 --set trainer.batch_tokens=128 --set trainer.micro_batch_tokens=64 \
  --set trainer.schedule.warmup_steps=1 --set trainer.schedule.cooldown_steps=1

start_packer "$whole" "$@"
PLM_EMULATED_TUNING=1 run_trainer "$whole" "$@" || fail "the run ended with $?"
stop_packer
says trainer.log 'tuned [0-9]* products'
jq -e '.resolved.algorithms | length > 5' "$whole/checkpoints/latest/trainer.json" >/dev/null ||
  fail "trainer.json has no algorithms"

PLM_EMULATED_TUNING=1 start_and_kill "$killed" 2 "$@" # the first step is published by then
: >trainer.log
PLM_EMULATED_TUNING=2 run_trainer "$killed" "$@" || fail "the resumed run ended with $?"
stop_packer
! grep -E 'tuned|not bit-exact' trainer.log || fail "the resume measured again"
same_run "$whole" "$killed" 3

# The algorithms that the resume would have found give other bits, so the test would notice them.
start_packer "$other" "$@"
PLM_EMULATED_TUNING=2 run_trainer "$other" "$@" || fail "the other run ended with $?"
stop_packer
diff <(state_of "$whole" step_00000003) <(state_of "$other" step_00000003) >/dev/null &&
  fail "other algorithms give the same bits: the test is blind"
echo "bit-identical with the checkpoint's algorithms, not with others"
