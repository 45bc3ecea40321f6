#!/usr/bin/env bash
# Two ranks give the bits of one: each step's exact metrics, the weights, averages and moments of each checkpoint, also
# after a resume, in fp32 and in bf16, in which no rank keeps all fp32 values. The larger
# tests/integration/ranks/test_ranks*.sh cover more ranks, architectures, failures and devices.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_corpus corpus 120
trainer_config transformer
set=("${rank_settings[@]:?}" --set trainer.micro_batch_tokens=64 --set trainer.batch_tokens=256 --set data.max_length=64
  --set model.num_hidden_layers=2 --set trainer.steps=3 --set trainer.checkpoint.every=1)
engine=$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so

for precision in fp32 bf16; do
  one=$PLM_TMP/one-$precision two=$PLM_TMP/two-$precision
  set_of=("${set[@]}" --set "trainer.precision=$precision")
  run_undisturbed_ranks 1 "$one" "${set_of[@]}"
  jq -se 'length == 3 and all(.[]; has("slowest_rank") | not)' "$one/trainer.jsonl" >slowest.log ||
    fail "one rank in $precision: $(cat slowest.log)"

  # the run is resumed from a checkpoint of a step: in fp32, because the one after it arrives with other bytes and is not
  # published, and in bf16, because the ranks are killed
  start_packer "$two"
  if [ $precision = fp32 ]; then
    : >trainer.log
    PLM_MPI_LIBRARY=$PLM_BUILD/tests/lib/stale_engine.so PLM_STALE_ENGINE=$engine PLM_STALE_RANK=1 PLM_STALE_SEND=3 \
      run_ranks 2 "$two" "${set_of[@]}"
    [ $? -eq 1 ] || fail "old values ended otherwise"
    [ "$(grep -c "^plm-trainer: rank 0 on .*: what rank 1 sent for the checkpoint arrived with other bytes$" trainer.log)" -eq 1 ] ||
      fail "not one message says so"
    [ "$(newest_step "$two")" -eq 1 ] || fail "the checkpoints are $(ls "$two/checkpoints")"
  else
    start_ranks_for 2 "$two" 2 "${set_of[@]}"
    mapfile -t ranks < <(ranks_of "$trainer_pid")
    kill -9 "${ranks[@]}"
    wait "$trainer_pid"
    no_rank_left "${ranks[@]}"
    [[ $(newest_step "$two") = [12] ]] || fail "the checkpoints are $(ls "$two/checkpoints")"
  fi
  : >trainer.log
  run_ranks 2 "$two" "${set_of[@]}" || fail "two ranks in $precision ended with $?"
  [ "$(grep -c "resuming after step" trainer.log)" -eq 1 ] || fail "not only rank 0 says how it resumes: $(cat trainer.log)"
  stop_packer
  same_checkpoints "$one" "$two"
  same_run "$one" "$two" 3
  jq -se 'length == 3 and all(.[]; .exact != false and .slowest_rank >= 0 and .slowest_rank < 2)' "$two/trainer.jsonl" \
    >slowest.log || fail "two ranks in $precision: $(cat slowest.log)"
done
