#!/usr/bin/env bash
# plm-pipeline completion, for itself and the stages' programs: asks bash itself what it would offer.
. "$PLM_ROOT/tests/support/shell/lib.sh"
pipeline=$PLM_BIN/plm-pipeline
echo 'seed: 7' >pipeline.yaml

for program in plm-pipeline plm-packer plm-trainer plm-evaluator; do
  "$pipeline" completion bash "$program" || fail "completion bash $program"
done >completion.bash
# shellcheck disable=SC1091
source completion.bash
# completes WANTED WORD...: what bash offers for the last word; the first one is the program
completes() {
  local wanted=$1
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  "_${1//-/_}" "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}" || fail "bash: '$*'"
  [ "${COMPREPLY[*]}" = "$wanted" ] || fail "bash completes '$*' to '${COMPREPLY[*]}'"
}
completes validate plm-pipeline val
completes 'trainer evaluator packer' plm-pipeline metrics ''
completes 'trainer evaluator packer' plm-pipeline logs -f ''
completes 'bash zsh fish plm-packer plm-trainer plm-evaluator' plm-pipeline completion ''
completes packer= plm-pipeline scale ''
completes '' plm-pipeline trace --step ''
completes '--json' plm-pipeline -c pipeline.yaml ps --j
completes '--json' plm-pipeline --run = here ps --j
completes 'trainer.steps=' plm-pipeline up --set trainer.ste
completes 'always' plm-pipeline ps --color al
completes 'auto' plm-pipeline up --resume au
completes 'pipeline.yaml' plm-pipeline validate pipeline.y
completes 'pipeline.yaml' plm-pipeline ingest --clusters pipeline.y
completes '' plm-pipeline ingest --clusters ts
completes 'pipeline.yaml' plm-pipeline up -c pipeline.y
completes 'pipeline.yaml' plm-pipeline runs pipeline.y
completes 'pipeline.yaml' plm-packer --corpus pipeline.y
completes '--allow-remote' plm-packer --threads 2 --al
completes '' plm-packer pipeline.y
completes '--dry-run' plm-trainer -c pipeline.yaml --dr
completes 'trainer.steps=' plm-trainer --set trainer.ste
completes 'evaluate embed' plm-evaluator e
completes 'pipeline.yaml' plm-evaluator embed --checkpoint here pipeline.y
completes '--pooling' plm-evaluator embed --poo
completes '' plm-evaluator generate --poo
for program in plm-packer plm-trainer plm-evaluator; do # every option of its help
  "$program" -h | grep -oE -- '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+' >options
  [ "$(wc -l <options)" -gt 8 ] || fail "the help of $program has few options"
  while read -r option; do completes "$option" "$program" "$option"; done <options
done
expect 2 plm-pipeline completion csh
says err 'bash, zsh or fish'
expect 2 plm-pipeline completion csh plm-packer
says err '^plm-packer: .*bash, zsh or fish'
expect 2 plm-pipeline completion bash plm-unpacker
says err 'no completion for "plm-unpacker"'
