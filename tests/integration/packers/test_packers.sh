#!/usr/bin/env bash
# Neither the number of packers nor their deaths change a run: one packer, and two that are killed three times each,
# give the same exact metrics and the same checkpoint. The runs are longer than the test needs, so that every death is
# in the middle of one, however slow the machine is.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 100
small_config pipeline.yaml patch_unet
every=20
ahead=70 # more steps than the trainer can have received but not done
endless=(--set network.credit_bytes=65536 --set trainer.steps=1000000 --set trainer.checkpoint.every="$every"
  --set model.num_unet_layers=2
  --set trainer.checkpoint.keep_last=100000 --set packer.restart=always)

start() { # RUN ARG…: a run in the background; its pid is in $up
  local run=$1
  shift
  plm-pipeline up pipeline.yaml trainer packer --run "$run" "${endless[@]}" "$@" >"$run.out" 2>"$run.err" </dev/null &
  up=$!
}
stop() { # RUN PID: ends it
  local status=0
  kill -TERM "$2"
  wait "$2" || status=$?
  [ "$status" -eq 143 ] || { tail -n 40 "$1.err" >&2; fail "up on $1 ended with $status"; }
}
serving_packers() { # RUN: the pids of those from which the trainer has received chunks, in order
  jq -r '.[] | select(.tokens > 0) | .pid' "$1/peers.trainer.json" | sort -n
}
two_new_packers() { # do two packers of the run `killed` serve, both started after those that were killed?
  serving_packers killed >pids
  [ "$(wc -l <pids)" -eq 2 ] && ! grep -qxf killed.pids pids
}
steps_of() { if [ -e "$1/trainer.jsonl" ]; then wc -l <"$1/trainer.jsonl"; else echo 0; fi; }
beyond() { [ "$(steps_of "$1")" -gt "$2" ]; }

# Packers are told about once a second, and the other runs have to train as far as this one. So it trains slowly.
slowly() { # PID: lets it run for a tenth of the time
  while kill -CONT "$1" 2>/dev/null; do
    sleep 0.02
    kill -STOP "$1" 2>/dev/null || break
    sleep 0.18
  done
}

start killed --scale packer=2
wait_for 60 test -e killed/trainer.jsonl
trainer=$(plm-pipeline ps --run killed --json | jq '.[] | select(.stage == "trainer").pid')
slowly "$trainer" &
slowing=$!
echo none >killed.pids
for _ in 1 2 3; do # after a fifth death in ten minutes a packer is not started again
  wait_for 20 two_new_packers
  wait_for 60 beyond killed "$(steps_of killed)"
  xargs kill -KILL <pids || fail "a packer was gone before it was killed"
  cat pids >>killed.pids
done
wait_for 20 two_new_packers
compared=$((($(steps_of killed) + ahead) / every * every)) # all packers have served some of these steps
checkpoint=checkpoints/step_$(printf %08d "$compared")
kill "$slowing"
wait "$slowing" || true
kill -CONT "$trainer"
wait_for 60 test -d "killed/$checkpoint"
stop killed "$up"

start one
wait_for 120 test -d "one/$checkpoint"
stop one "$up"

for run in one killed; do
  head -n "$compared" "$run/trainer.jsonl" >$run.lines
  exact_metrics $run.lines >$run.exact
done
[ "$(wc -l <one.exact)" -eq "$compared" ] || fail "the run has not one line a step"
cmp one.exact killed.exact || fail "killed packers change the metrics"
for file in model.safetensors optimizer.safetensors; do
  cmp "one/$checkpoint/$file" "killed/$checkpoint/$file" || fail "$file differs"
done
