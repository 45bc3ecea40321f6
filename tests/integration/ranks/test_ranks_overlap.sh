#!/usr/bin/env bash
# Buckets travel while the backward pass and the update compute what follows: a transfer is started before
# the next work item begins, and is waited for after that segment has ended.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus
trainer_config transformer
steps=4

trace() { # GROUP: a profile of two ranks that form groups of this size, in rank-0.json and rank-1.json
  local run=$PLM_TMP/run-$1
  start_packer "$run"
  PLM_RANK_GROUP=$1 run_ranks 2 "$run" "${rank_settings[@]:?}" --set trainer.steps=$steps \
    --set trainer.profile.steps=1-$steps --set model.num_hidden_layers=4 || fail "the run ended with $?"
  stop_packer
  for rank in 0 1; do
    jq --argjson rank $rank '[.traceEvents[] | select(.ph == "X" and .pid == $rank)]' "$run/profile.json" \
      >"$PLM_TMP/rank-$rank.json" || fail "no profile was written"
  done
}

# under WAY WORK: for each rank and step, how many transfers of WAY had a whole segment of WORK between their
# start and the wait for them
under() {
  jq --arg way "$1" --arg work "$2" '
    [.[] | select(.name | startswith($way + " "))] as $all |
    ([$all[] | select(.tid >= 5)] | sort_by(.ts)) as $moves |
    ([$all[] | select(.tid == 0)] | sort_by(.ts)) as $waits |
    [.[] | select(.tid == 1 and (.name | startswith($work + " ")))] as $segments |
    [range($moves | length) as $i | $moves[$i] as $move | $waits[$i] as $wait |
      select(any($segments[]; .ts >= $move.ts and .ts + .dur <= $wait.ts))] | length'
}

# segments_of WORK: in how many segments it was done
segments_of() { jq --arg work "$1" '[.[] | select(.tid == 1 and (.name | startswith($work + " ")))] | length'; }

for group in 2 1; do
  trace "$group"
  # the last transfers of a step have nothing beside them: those of weights to the group begin one segment later
  [ "$group" -eq 2 ] && gradients="gradients in group" weights="weights in group" last=2
  [ "$group" -eq 1 ] && gradients="gradients on rail" weights="weights on rail" last=1
  for rank in 0 1; do
    file=$PLM_TMP/rank-$rank.json
    partitioned "$rank" 0 <"$file" # the events of the rank add up to its steps
    for work in backward update; do
      segments=$(segments_of $work <"$file") || fail "rank $rank wrote no trace"
      [ "$segments" -ge $((3 * steps)) ] || fail "the $work ran in $segments segments in $steps steps"
    done
    beside=$(under "$gradients" backward <"$file")
    [ "$beside" -ge $(($(segments_of backward <"$file") - steps)) ] ||
      fail "only $beside transfers of gradients ran under the backward pass"
    beside=$(under "$weights" update <"$file")
    [ "$beside" -ge $((segments - last * steps)) ] || fail "only $beside transfers of weights ran under the update"
  done
done
