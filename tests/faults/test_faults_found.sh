#!/usr/bin/env bash
# Faults that once broke something, each at the first of the calls that it concerned (doc/faults.md).
[ -e "${PLM_BUILD:?}/tests/lib/faults.so" ] || { echo "no faults.so under sanitizers"; exit 77; }
found=()
# A stage that could not read endpoints.json wrote it anew with only its own key, so packers no longer
# found the trainer.
found+=(--kind trainer EIO 'open:run/endpoints.json#[12]$')
# A process killed while it replaced a file left NAME.tmp-PID for ever.
found+=(--kind trainer torn '(fsync|rename):run/(pipeline.yaml|endpoints.json).tmp#1$')
# One input/output error while a checkpoint was read lost its evaluation. The files of one checkpoint that the
# evaluator uses; all others are only hashed, like vocab.txt.
found+=(--kind evaluator EIO
  '(open|pread):run/checkpoints/step_00000000/(MANIFEST|config.json|(model|ema).safetensors|vocab.txt)#1$')
# A trainer killed at its end left its endpoints and its list of packers.
found+=(--kind trainer torn '(fsync:run/DONE.tmp|unlink:run/peers)')
# The same when only `up` looks at the complete run.
found+=(--kind up torn 'end:')
# An error while listing checkpoints was taken for the end of the list: steps were reported as deleted.
found+=(--kind evaluator EIO 'readdir:run/checkpoints#[14]$')
# An error while looking whether there are averaged weights was taken for there being none: a resume lost
# the average, and the evaluator judged the other weights.
found+=(--kind resume EIO 'stat:.*/step_00000002/ema.safetensors#1$')
found+=(--kind evaluator EIO 'stat:.*/step_00000000/ema.safetensors#1$')
# A lack of descriptors was taken for damage, so the checkpoint was never evaluated.
found+=(--kind evaluator EMFILE 'open:run/checkpoints/step_00000000/(MANIFEST|vocab.txt)#1$')
# A checkpoint that could not be looked at was reported as deleted.
found+=(--kind evaluator EIO 'lstat:run/checkpoints/step_00000000#[12]$')
# `up --resume PATH` moved checkpoints and lines of metrics aside, but not durably: a power cut lost them.
found+=(--kind back lost '(rename:run/evaluator.jsonl.tmp|end:)#1$')
# A power cut left a checkpoint both in the run folder and in previous-1. It stayed in the run folder, so its steps
# had no lines of metrics.
found+=(--kind back lost '(open|fsync):run/checkpoints#1$')
# An error while looking at the checkpoint of `--resume PATH` was taken for a wrong path.
found+=(--kind back EMFILE 'stat:run/checkpoints/step_00000002#[12]$')
# A stage whose log could not be created once was given up instead of being started again.
found+=(--kind up EMFILE 'create:run/logs/(packer|evaluator).0.log#1$')
# An error while looking for the run's keys was taken for their absence: a second pair was made and stayed.
found+=(--kind trainer EIO 'stat:run/(keys|pipeline.yaml)#[1-3]$')
python3 -B "$PLM_ROOT/tests/faults/faults.py" "${found[@]}"
