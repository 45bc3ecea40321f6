#!/usr/bin/env bash
# Several ranks whose kernels for sm_90a fail their check, emulated: the check runs in a process of its own, as without
# ranks, and all ranks do without. If only one of them does, the run does not begin.
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

# If only one rank does without, the ranks have other bits, so the run does not begin.
: >"$log"
# shellcheck disable=SC2016 # for the shell of each rank
on_ranks 2 bash -c \
  '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || bad=products=fault; PLM_EMULATED_CARD="capability=90 ${bad-}" exec "$@"' - \
  "$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" --run "$PLM_TMP/one" --set trainer.ranks=2 "${ranks[@]}" >>"$log" 2>&1
[ $? -eq 2 ] || fail "ranks with different kernels: $(cat "$log")"
grep -q 'rank 0 on .* has CUDA kernels attention sm90, backward tuned, relu2 tuned, but rank 1 on .* has attention mma, relu2 library' "$log" ||
  fail "no reason: $(cat "$log")"
grep -q 'set PLM_CUDA_ATTENTION=mma and PLM_CUDA_RELU2=library for all ranks' "$log" || fail "no hint: $(cat "$log")"

# With `auto` and a driver that is too old, all ranks take the CPU, and one line says so.
: >"$log"
start_packer "$PLM_TMP/old"
PLM_EMULATED_CARD=driver=11080 run_ranks 2 "$PLM_TMP/old" "${ranks[@]}" --set trainer.device=auto --set trainer.precision=fp32 ||
  fail "two ranks with an old driver: $(cat "$log")"
stop_packer
[ "$(grep -c 'using the CPU instead of the CUDA device: .*too old' "$log")" -eq 1 ] || fail "not one line: $(cat "$log")"
jq -e '.resolved | .ranks == 2 and .device == "cpu" and (.fallback | contains("too old"))' \
  "$PLM_TMP/old/checkpoints/latest/trainer.json" >/dev/null || fail "the fallback is not recorded"
