#!/usr/bin/env bash
# One, two and four ranks on devices give the same bits, with NCCL and staged through the host, also when
# the run is resumed by another number of ranks. The devices and NCCL are emulated.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=4
common=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.device=cuda --set trainer.steps=2
  --set trainer.checkpoint.every=1 --set trainer.batch_tokens=256 --set model.architecture=transformer --set model.num_hidden_layers=1)

# train NAME RANKS [ARG...]: a whole run
train() {
  local name=$1 ranks=$2
  shift 2
  start_packer "$PLM_TMP/$name" "$@"
  run_ranks "$ranks" "$PLM_TMP/$name" "${common[@]}" "$@" || fail "$name ended with $?: $(tail -5 "$log")"
  stop_packer
}

PLM_EMULATED_NCCL=1 train two 2
jq -e '.exact and .resolved.device == "cuda" and .resolved.ranks == 2' "$PLM_TMP/two/checkpoints/latest/trainer.json" >/dev/null ||
  fail "two ranks on devices are not exact"
PLM_EMULATED_NCCL=2 train four 4
same_run "$PLM_TMP/two" "$PLM_TMP/four" 2
PLM_EMULATED_NCCL=3 PLM_RANK_GROUP=2 train groups 4
same_run "$PLM_TMP/two" "$PLM_TMP/groups" 2
PLM_EMULATED_DEVICES=1 PLM_COLLECTIVE=mpi train staged 2
same_run "$PLM_TMP/two" "$PLM_TMP/staged" 2

# Resumed by other numbers of ranks: rank 0 reads the moments and sends them to the other devices, and Muon's
# batches have other sizes.

# continue_with NAME RANKS: this many ranks make step 2 from the checkpoint of step 1, to the same bits
continue_with() {
  local name=$1 ranks=$2 file
  local moved=$PLM_TMP/$name-by-$ranks
  cp -r "$PLM_TMP/$name" "$moved"
  rm -r "$moved/checkpoints/step_00000002" "$moved/DONE"
  ln -sfn step_00000001 "$moved/checkpoints/latest"
  : >"$log"
  train "$name-by-$ranks" "$ranks"
  ! grep -q "not bit-exact" "$log" || fail "$ranks ranks do not continue exactly: $(cat "$log")"
  for file in model ema optimizer; do
    cmp "$PLM_TMP/$name/checkpoints/step_00000002/$file.safetensors" "$moved/checkpoints/step_00000002/$file.safetensors" ||
      fail "$file differs after $ranks ranks have continued the run $name"
  done
}
continue_with two 1
continue_with two 4

# Each rank measures other algorithms of products than the next one. All ranks then use the same ones, which the
# checkpoint has: otherwise one rank could not continue to the same bits.
export PLM_ALGORITHM_CACHE=''
start_packer "$PLM_TMP/each"
PLM_EMULATED_NCCL=5 mpirun --oversubscribe --bind-to none -np 2 bash -c \
  'PLM_EMULATED_TUNING=$((5 + OMPI_COMM_WORLD_RANK)) exec "$@"' - "$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" \
  --run "$PLM_TMP/each" --set trainer.ranks=2 "${common[@]}" >>"$log" 2>&1 || fail "each ended with $?: $(tail -5 "$log")"
stop_packer
[ "$(jq -r .resolved.algorithms "$PLM_TMP/each/checkpoints/latest/trainer.json" | wc -l)" -gt 5 ] || fail "nothing was tuned"
! diff <(exact_metrics "$PLM_TMP/two/trainer.jsonl") <(exact_metrics "$PLM_TMP/each/trainer.jsonl") >/dev/null ||
  fail "other algorithms have the same bits"
continue_with each 1

# What cannot work ends with 2 and one message.
: >"$log"
PLM_EMULATED_DEVICES=1 run_ranks 2 "$PLM_TMP/shared" "${common[@]}"
[ $? -eq 2 ] || fail "NCCL was used with one device for two ranks"
[ "$(grep -c 'ranks 0 and 1 on .* use the same GPU' "$log")" -eq 1 ] || fail "not one rank says that they share a GPU"

# NCCL fails under way: all ranks end, and one of them says why.
: >"$log"
start_packer "$PLM_TMP/failing"
PLM_EMULATED_NCCL=1 PLM_EMULATED_NCCL_FAULT=error run_ranks 2 "$PLM_TMP/failing" "${common[@]}"
[ $? -eq 1 ] || fail "an error of NCCL did not end the run with 1"
[ "$(grep -c 'an exchange between GPUs failed: unhandled system error' "$log")" -eq 1 ] || fail "not one rank says what failed: $(cat "$log")"
