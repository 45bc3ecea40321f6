#!/usr/bin/env bash
# Which weights of a checkpoint are used: the EMA weights if there are any, unless --weights chooses.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 120
small_config averaged.yaml unet
plm-pipeline up averaged.yaml --set run=averaged --set trainer.ema=0.9 --set trainer.steps=4 -q 2>up.log
plm-pipeline up averaged.yaml --set run=plain --set trainer.steps=1 -q 2>up.log
averaged=averaged/checkpoints/latest plain=plain/checkpoints/latest

embed() { # OUTPUT OPTIONS…
  expect 0 plm-pipeline embed --checkpoint $averaged --output "$@" corpus.fasta
}
embed default.safetensors
embed ema.safetensors --weights ema
embed model.safetensors --weights model
cmp -s default.safetensors ema.safetensors || fail "the EMA weights are not the default"
! cmp -s ema.safetensors model.safetensors || fail "--weights model uses the EMA weights"

for task in "embed --output x.safetensors corpus.fasta" "generate --output x.fasta --length 5" \
  "score --wild-type MKVLAG M1A"; do
  # shellcheck disable=SC2086
  expect 1 plm-pipeline $task --checkpoint $plain --weights ema
  says err 'has no EMA weights'
  # shellcheck disable=SC2086
  expect 2 plm-pipeline $task --checkpoint $plain --weights best
  says err '[-]-weights must be model or ema, not "best"'
done
