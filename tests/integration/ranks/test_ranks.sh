#!/usr/bin/env bash
# Several ranks give the bits of one: weights, averages, moments and exact metrics. Every architecture and objective runs
# on four ranks, in fp32 or bf16; models with frozen parts and with adapters run on two. Ranks in groups are those of
# test_ranks_hosts.sh and test_ranks_values.sh. A run that begins with published weights has one, two or four.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config transformer
common=("${rank_settings[@]}" --set trainer.steps=5 --set trainer.checkpoint.every=3)

# compare NAME RANKS [ARG...]: a run, which must not differ from that of the same name with one rank, which comes first
compare() {
  local name=$1 ranks=$2 run
  shift 2
  run=$PLM_TMP/$name-$ranks
  start_packer "$run" "$@"
  run_ranks "$ranks" "$run" "${common[@]}" "$@" || fail "$name with $ranks ranks ended with $?"
  stop_packer
  jq -e "if $ranks == 1 then has(\"slowest_rank\") | not else .slowest_rank >= 0 and .slowest_rank < $ranks end" \
    "$run/trainer.jsonl" >"$PLM_TMP/slowest" || fail "slowest_rank with $ranks ranks: $(jq -c .slowest_rank "$run/trainer.jsonl")"
  [ "$ranks" -eq 1 ] && return
  same_run "$PLM_TMP/$name-1" "$run" 5
  same_run "$PLM_TMP/$name-1" "$run" 3
  [ "$(jq .resolved.ranks "$run/checkpoints/step_00000005/trainer.json")" = "$ranks" ] || fail "trainer.json: ranks"
  diff -rq "$PLM_TMP/$name-1/checkpoints/step_00000005" "$run/checkpoints/step_00000005" |
    grep -v ' MANIFEST .* differ$\|/MANIFEST \|trainer.json' && fail "other files of the checkpoint differ"
  true
}

bf16=(--set trainer.precision=bf16)
for ranks in 1 4; do
  compare mlm "$ranks" --set model.architecture=transformer --set trainer.objective=mlm
  compare causal "$ranks" --set model.architecture=unet --set trainer.objective=causal \
    --set 'model.attention.pattern=[causal]' --set trainer.optimizer.name=adamw
  compare diffusion "$ranks" --set model.architecture=patch_unet --set trainer.objective=masked_diffusion \
    "${bf16[@]}"
  compare esm2 "$ranks" --set model.architecture=esm2 --set trainer.recompute=mlp "${bf16[@]}"
  compare esmc "$ranks" --set model.architecture=esmc --set trainer.optimizer.name=adamw
done
# from weights as they were published
plm-pipeline export --checkpoint "$PLM_TMP/esm2-1/checkpoints/step_00000005" --output "$PLM_TMP/source" \
  >"$PLM_TMP/export.log" 2>&1 || fail "export: $(cat "$PLM_TMP/export.log")"
for ranks in 1 2 4; do
  compare started "$ranks" --set model.architecture=esm2 --set trainer.init_from="$PLM_TMP/source"
done
for ranks in 1 2; do
  compare frozen "$ranks" --set model.architecture=esmc --set trainer.freeze.embeddings=true \
    --set trainer.freeze.blocks=1 --set trainer.ema=0.9 "${bf16[@]}"
  compare adapters "$ranks" --set model.architecture=esm2 --set trainer.lora.rank=4 \
    --set 'trainer.lora.targets=[q, v, up, down]' --set trainer.lora.dropout=0.1 --set trainer.recompute=block \
    "${bf16[@]}"
done

# the configuration that ships with the project takes any of these numbers of ranks
for ranks in 1 2 4; do
  plm-pipeline validate "$PLM_ROOT/pipeline.yaml" --set "trainer.ranks=$ranks" >"$PLM_TMP/validate.log" 2>&1 ||
    fail "pipeline.yaml with $ranks ranks: $(cat "$PLM_TMP/validate.log")"
done
