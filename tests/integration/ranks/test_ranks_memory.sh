#!/usr/bin/env bash
# The memory that each of one, two and four ranks takes, compared with the estimate of --dry-run; in bf16, in which a rank
# keeps only a part of the fp32 values; and that of one rank for every architecture, because ranks divide only parameters
# (tests/trainer/ranks/test_rank_needs.c).
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config unet
must_be_there "$PLM_BUILD/tests/lib/count_memory.so"
cat >counted <<'RANK'
#!/bin/bash
export LD_PRELOAD=$PLM_BUILD/tests/lib/count_memory.so
exec "$PLM_BIN/plm-trainer" "$@"
RANK
chmod +x counted

# deep enough for the model to be large beside what rounding hides
declare -A deep=([transformer]=model.num_hidden_layers=8 [unet]=model.num_hidden_layers=8 [patch_unet]=model.num_unet_layers=4)

# bf16 as this processor multiplies it; by fp32 products, the workspace has room for widened operands
kinds=('transformer fp32 1 2 4' 'unet fp32 1' 'patch_unet fp32 1' 'unet bf16 1 4')
for kind in "${kinds[@]}"; do
  read -r architecture precision numbers <<<"$kind"
  for ranks in $numbers; do
    set=("${rank_settings[@]}" --set "model.architecture=$architecture" --set "${deep[$architecture]}"
      --set "trainer.precision=$precision" --set trainer.steps=2 --set "trainer.ranks=$ranks")
    export PLM_COUNT_MEMORY=$PLM_TMP/$architecture-$precision-$ranks
    mkdir "$PLM_COUNT_MEMORY"
    plm-trainer -c pipeline.yaml "${set[@]}" --dry-run --json >estimate.json || fail "the estimate of $ranks ranks"
    start_packer "runs/$architecture-$precision-$ranks" "${set[@]}"
    on_ranks "$ranks" ./counted -c pipeline.yaml --run "runs/$architecture-$precision-$ranks" \
      "${set[@]}" >>trainer.log 2>&1 || fail "$ranks ranks ended with $?"
    stop_packer
    for ((rank = 0; rank < ranks; rank++)); do
      read -r least most <"$PLM_COUNT_MEMORY/$rank" || fail "rank $rank of $ranks counted nothing"
      # Chunks in flight are received by ZeroMQ. The CPU backend needs a little for itself, which is not planned.
      planned=$(jq "(.device_bytes + .host_bytes - .credit - (if $rank > 0 then .snapshot else 0 end)) | floor" estimate.json)
      at="$architecture in $precision, rank $rank of $ranks: planned $planned bytes, took between $least and $most"
      [ $((most - least)) -lt $((planned / 4)) ] || fail "this says little: $at"
      [ "$planned" -le "$most" ] || fail "less than planned: $at"
      [ $((planned + 500000)) -ge "$least" ] || fail "more than planned: $at"
    done
  done
done
