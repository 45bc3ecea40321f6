#!/usr/bin/env bash
# A packer whose trainer is complete says once that it was told BYE, and does not announce that it
# tries again. It serves a trainer that comes back.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
short=(--set trainer.steps=2 --set trainer.schedule.warmup_steps=1
  --set trainer.schedule.cooldown_steps=0 --set trainer.checkpoint.every=2)

plm-packer -v -c pipeline.yaml 2>packer.err &
packer=$!
expect 0 plm-trainer -c pipeline.yaml "${short[@]}"
wait_for 30 grep -q 'has not come back' packer.err
says packer.err 'said BYE'
# Before the trainer listened, the packer may have said so.
sed '1,/said BYE/d' packer.err | grep 'trying again' && fail "it announces that it tries again"

suspend "$packer" # it may be writing there
rm -r run
kill -CONT "$packer"
expect 0 plm-trainer -c pipeline.yaml "${short[@]}"
says packer.err 'serving .* again'
kill "$packer"
drained "$packer" "the packer"
