#!/usr/bin/env bash
# What makes training on a device fast and leaves no trace in the results: a step's input is copied to
# the device while the step before it computes, a checkpoint is copied from it while the next step
# computes, and micro-batches and updates are replayed from recordings. The emulated streams say what
# they were asked to do.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/emulated_cuda.sh"
export PLM_CUDA_LIBRARY=$emulated PLM_EMULATED_TRACE=$PLM_TMP/trace.log
steps=4 # two micro-batches each

# The largest upload is a step's input. The first step's has no step before it. All others must be copied while the
# step before them computes. An input that comes too late for that, because the packer or a thread had no processor,
# is copied without it, so the run is repeated until none was late.
all_inputs_overlap() {
  local block uploads
  rm -rf run trace.log
  start_packer "$PLM_TMP/run"
  run_trainer "$PLM_TMP/run" --set trainer.device=cuda || fail "the run ended with $?"
  stop_packer
  block=$(awk '$1 == "upload" && $2 > most {most = $2} END {print most + 0}' trace.log)
  [ "$block" -gt 0 ] || fail "nothing was copied beside the computation"
  uploads=$(awk -v block="$block" '$1 == "upload" && $2 == block {print $4}' trace.log | paste -sd ' ')
  [ "$(wc -w <<<"$uploads")" -eq "$steps" ] || fail "inputs were not copied once a step: $uploads"
  [ "$uploads" = '0 1 1 1' ]
}
for run in {1..10}; do
  all_inputs_overlap && break
  [ "$run" -lt 10 ] || fail "in no run were all inputs copied while the step before them computed"
done

# Each shape of a micro-batch, and the update, is computed once as it is, then recorded, then replayed.
records=$(grep -c '^record' trace.log)
replays=$(grep -c '^replay' trace.log)
[ "$records" -ge 1 ] || fail "nothing was recorded"
! grep -E '^(record|replay) 0$' trace.log || fail "a recording is empty"
# At least the updates of the steps after the first are replayed.
[ "$replays" -ge $((steps - 1)) ] || fail "$replays replays in $steps steps"
[ "$records" -lt "$replays" ] || fail "$records recordings for $replays replays"

# The step after a checkpoint computes its micro-batches before it waits for the checkpoint's copies. The
# largest download is the weights.
rm trace.log
start_packer "$PLM_TMP/second"
run_trainer "$PLM_TMP/second" --set trainer.device=cuda --set trainer.checkpoint.every=1 || fail "the run ended with $?"
stop_packer
weights=$(awk '$1 == "download" && $2 > most {most = $2} END {print most + 0}' trace.log)
followed=$(awk -v weights="$weights" '
  $1 == "download" && $2 == weights {copied = 1}
  /^(record|replay)/ {begun = 1; if (copied) followed++; copied = 0}
  $1 == "wait" {if (copied && begun) print "a wait"; copied = 0}
  END {print followed + 0}' trace.log)
[ "$followed" = $((steps - 1)) ] || # the first step is not recorded, so its computation leaves no trace
  fail "not all steps began without waiting for a checkpoint's copies: $followed"
