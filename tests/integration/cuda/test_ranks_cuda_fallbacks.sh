#!/usr/bin/env bash
# Several ranks whose kernels for sm_90a fail their check, emulated: the check runs in a process of its own, as without
# ranks, and all ranks do without. Ranks of which only some do: tests/trainer/ranks/test_rank_start.c.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=2
ranks=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.steps=1 --set trainer.batch_tokens=256
  --set trainer.device=cuda --set trainer.precision=bf16)
: >"$log"
start_packer "$PLM_TMP/both"
PLM_EMULATED_CARD="capability=90 products=fault" run_ranks 2 "$PLM_TMP/both" "${ranks[@]}" ||
  fail "two ranks whose check fails: $(cat "$log")"
stop_packer
[ "$(grep -c 'attention runs on mma.sync, because' "$log")" -eq 2 ] || fail "not one line for each rank: $(cat "$log")"
jq -e '.resolved | .ranks == 2 and .kernels == "attention mma, relu2 library" and .fallback != ""' \
  "$PLM_TMP/both/checkpoints/latest/trainer.json" >/dev/null || fail "the kernels are not recorded"

# With `auto` and a driver that is too old, all ranks take the CPU, and one line says so.
: >"$log"
start_packer "$PLM_TMP/old"
PLM_EMULATED_CARD=driver=11080 run_ranks 2 "$PLM_TMP/old" "${ranks[@]}" --set trainer.device=auto --set trainer.precision=fp32 ||
  fail "two ranks with an old driver: $(cat "$log")"
stop_packer
[ "$(grep -c 'using the CPU instead of the CUDA device: .*too old' "$log")" -eq 1 ] || fail "not one line: $(cat "$log")"
jq -e '.resolved | .ranks == 2 and .device == "cpu" and (.fallback | contains("too old"))' \
  "$PLM_TMP/old/checkpoints/latest/trainer.json" >/dev/null || fail "the fallback is not recorded"
