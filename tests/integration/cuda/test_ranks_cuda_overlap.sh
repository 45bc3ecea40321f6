#!/usr/bin/env bash
# Gradients are exchanged between devices while the backward pass continues: the emulated streams say how
# much work a device may do during each transfer of NCCL.
. "$PLM_ROOT/tests/support/shell/ranks_cuda.sh"
export PLM_EMULATED_DEVICES=2
steps=3 # computed, recorded and replayed

# train RUN [ARG...]: blocks of 256 x 256 matrices, so that there are several buckets
train() {
  local run=$PLM_TMP/$1
  shift
  start_packer "$run"
  run_ranks 2 "$run" "${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.shares=2 \
    --set trainer.device=cuda --set trainer.steps=$steps --set model.architecture=transformer \
    --set model.num_hidden_layers=3 "$@" || fail "the run ended with $?"
  stop_packer
}
PLM_TRACE_RANKS=$PLM_TMP/streams train run
# The profile of another run, which records nothing, has the same transfers in the same order.
train profiled --set trainer.profile.steps=1-$steps
for rank in 0 1; do
  jq --argjson rank $rank '[.traceEvents[] | select(.ph == "X" and .pid == $rank)]' profiled/profile.json \
    >rank-$rank.json || fail "no profile was written"
  partitioned $rank 0 <rank-$rank.json # the host's events add up to its steps, and so do the device's
  partitioned $rank 2 <rank-$rank.json
done
same_checkpoints run profiled

# beside RANK WAY: how many transfers of WAY had a segment of the backward pass or of the update beside them. A
# rank waits for its transfers in the order in which the profile names them, and so do its streams.
beside() {
  paste -d ' ' <(grep '^exchange' "streams-$1") <(jq -r '[.[] | select(.tid == 0 and .cat == "exchange" and (.name | test(" in group | on rail ")))] |
    sort_by(.ts)[].name' "rank-$1.json") |
    awk -v way="$2 in group" '$4 >= 5 && index($0, way) == index($0, $5) {n++} END {print n + 0}'
}
segments() { jq --arg what "$2" '[.[] | select(.tid == 1 and (.name | startswith($what + " ")))] | length' "rank-$1.json"; }

for rank in 0 1; do
  backward=$(segments $rank backward) updates=$(segments $rank update)
  [ "$backward" -ge $((3 * steps)) ] || fail "the backward pass ran in $backward segments in $steps steps"
  [ "$updates" -ge $((3 * steps)) ] || fail "the update ran in $updates segments in $steps steps"
  # after each segment but the last of a step, gradients travel while the next segment is computed
  gradients=$(beside $rank gradients)
  [ "$gradients" -eq $((backward - steps)) ] ||
    fail "$gradients transfers of gradients ran beside $backward segments: $(grep '^exchange' streams-$rank)"
  # those after the first segment start when the second one is done, and so on: none runs beside the first two
  weights=$(beside $rank weights)
  [ "$weights" -eq $((updates - 2 * steps)) ] ||
    fail "$weights transfers of weights ran beside $updates segments: $(grep '^exchange' streams-$rank)"
  ! grep -E '^record 0$' streams-$rank || fail "a recording is empty"
done
