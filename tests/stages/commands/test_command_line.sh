#!/usr/bin/env bash
# The command line of plm-pipeline: help, suggestions, exit codes, validate, config. Others: test_command_*.c.
. "$PLM_ROOT/tests/support/shell/lib.sh"
set +e # it looks at exit codes itself
pipeline=$PLM_BIN/plm-pipeline

# answers CODE WORDS COMMAND...: it ends so, and a line of its output has the words
answers() {
  expect "$1" "${@:3}"
  cat out err | matches -F -- "$2" || fail "${*:3}: no '$2' in: $(cat out err)"
}

answers 0 'plm-pipeline ' "$pipeline" --version
answers 0 'commands:' "$pipeline" -h
answers 0 'usage: plm-pipeline up' "$pipeline" up -h
answers 0 'usage: plm-pipeline up' "$pipeline" help up
answers 0 'or published weights (ESM-2, ESM-C)' "$pipeline" embed -h
# no line of any help is wider than the terminal
too_wide() { COLUMNS=60 "$@" -h | awk 'length > 60 { print FILENAME $0; wide = 1 } END { exit !wide }'; }
commands=$("$pipeline" -h | sed -n '/^commands:/,/^$/s/^  \([a-z0-9]\+\) .*/\1/p')
grep -qx trace <<<"$commands" || fail "commands of the help: $commands"
for command in '' $commands; do
  # shellcheck disable=SC2086 # none is no word
  ! too_wide "$pipeline" $command || fail "$command -h is wider than 60 columns"
done
for stage in packer trainer evaluator; do
  ! too_wide "$PLM_BIN/plm-$stage" || fail "plm-$stage -h is wider than 60 columns"
done
answers 2 'a command is needed' "$pipeline"
answers 2 'unknown command "validat"; did you mean "validate"?' "$pipeline" validat
answers 2 'unknown option "--dryrun"; did you mean "--dry-run"?' "$pipeline" up --dryrun
answers 2 'unknown option "-Z"' "$pipeline" ps -Z
answers 2 'option "--config" needs an argument: FILE' "$pipeline" config --config
answers 2 'option "--json" takes no value' "$pipeline" config --json=1
answers 2 'option "--color" must be auto, always or never' "$pipeline" config --color blue
answers 2 'option "--set" needs KEY=VALUE' "$pipeline" config --set trainer.steps

# each command refuses what it would ignore: one word more than it takes
while read -r command most options; do
  words=
  for ((i = 0; i < most; i++)); do words+=' nothing'; done
  # shellcheck disable=SC2086 # none is no word
  answers 2 'unexpected argument "too-many"' "$pipeline" $command $options $words too-many
done <<'END'
corpus 1
down 0
scale 1
wait 0
join 1
ps 0
sweep 1
metrics 1
runs 1
evaluate 0
generate 1
trace 0
export 0
slurm 1
k8s 1
validate 1
doctor 1
config 1
manual 1
manual 0 --all=pages
completion 2
report 8
END
answers 2 'needs the name of one repository' "$pipeline" push a/b too-many
answers 2 'needs the folder to write to' "$pipeline" keys keys too-many

# ---- validate: all mistakes at once, in the order of the file ----
cat >wrong.yaml <<'Y'
trainer:
  steps: 0
  optimizer:
    lr_hiden: 0.1
data: {max_length: 500}
metrics: {prometheus: localhost}
Y
cat >expected <<'Y'
wrong.yaml:2:10: trainer.steps: 0 is out of range: must be at least 1 and at most 1000000000000 steps
wrong.yaml:4:5: unknown key "lr_hiden"; did you mean "lr_hidden"?
wrong.yaml:5:20: data.max_length: expected a power of two, found "500"
wrong.yaml:6:23: metrics.prometheus: expected HOST:PORT, for example 127.0.0.1:9464, found "localhost"
Y
"$pipeline" validate wrong.yaml 2>got >/dev/null
[ $? -eq 2 ] || fail "validate of a wrong file does not exit with 2"
diff expected got || fail "the errors differ"
for command in up config; do
  "$pipeline" "$command" wrong.yaml 2>got >/dev/null
  [ $? -eq 2 ] || fail "$command of a wrong file does not exit with 2"
  diff expected got || fail "$command: the errors differ"
done
"$pipeline" validate -c wrong.yaml --json >got 2>/dev/null
[ "$(jq length got)" = 4 ] || fail "validate --json: $(cat got)"
answers 2 'nowhere.yaml' "$pipeline" validate nowhere.yaml
for address in 127.0.0.1:9464 :0 '*:9464' '[::1]:9464' 'localhost:*'; do
  "$pipeline" config wrong.yaml --set "metrics.prometheus=$address" 2>&1 | grep prometheus >/dev/null &&
    fail "an address to serve metrics on: $address"
done
for address in 127.0.0.1 127.0.0.1: 127.0.0.1:65536 http://localhost:9464 9464; do
  answers 2 'metrics.prometheus: expected HOST:PORT' "$pipeline" config wrong.yaml --set "metrics.prometheus=$address"
done
echo 'seed: 7' >pipeline.yaml
# whole numbers are printed digit by digit
! "$pipeline" config --manual | awk 'length > 100 { wide = 1 } END { exit !wide }' || fail "the manual is too wide"
answers 0 'a whole number; default 1; from 0, to 18446744073709551615' "$pipeline" config --manual
"$pipeline" config --json --set seed=18446744073709551614 | grep '"value":.18446744073709551614,' >/dev/null ||
  fail "config --json rounds the seed"
answers 2 'must be at least 0 and at most 18446744073709551615' "$pipeline" validate --set seed=18446744073709551616
answers 2 'cooldown_steps: 41 steps of cool-down are more than the 40 of trainer.steps' "$pipeline" validate \
  --set trainer.steps=40 --set trainer.schedule.cooldown_steps=41
answers 0 'pipeline.yaml: valid' "$pipeline" validate --set trainer.steps=40 --set trainer.schedule.cooldown_steps=40% \
  --set trainer.schedule.warmup_steps=60%
answers 0 'pipeline.yaml: valid' "$pipeline" validate
for command in 'plm-pipeline validate' 'plm-pipeline up --dry-run' 'plm-pipeline up' plm-trainer; do
  # shellcheck disable=SC2086 # a program and its words
  answers 2 'trainer.ranks: 3 does not divide the 8 chunks of a step' "$PLM_BIN"/$command --set trainer.ranks=3
done
answers 2 'trainer.ranks is 2, but 1 process was started' "$PLM_BIN"/plm-trainer --set trainer.ranks=2
echo 'model: {attention: {pattern: [block], block: 32}}' >block.yaml
answers 0 '`block` masks count from the beginning of the chunk' "$pipeline" validate block.yaml
echo 'trainer: {objective: masked_diffusion, masking: {mask_rate: 0.3}}' >diffusion.yaml
answers 0 'trainer.masking.mask_rate: has no effect' "$pipeline" validate diffusion.yaml

# ---- config: values, origins, precedence; the output is itself a configuration ----
answers 0 '# pipeline.yaml:1:7' "$pipeline" config
answers 0 '# PLM_SEED' env PLM_SEED=8 "$pipeline" config
answers 0 '# --set' env PLM_SEED=8 "$pipeline" config --set seed=9
# an included file gives what its includer leaves out, and is named as the origin
mkdir shared
printf 'seed: 31\ntrainer: {ema: 0.5, steps: 70}\n' >shared/base.yaml
printf 'include: shared/base.yaml\ntrainer: {steps: 80}\n' >including.yaml
origins=$("$pipeline" config including.yaml | grep -E '^(seed|  steps|  ema):' | tr -s ' ')
wanted=$'seed: 31 # shared/base.yaml:1:7\n steps: 80 # including.yaml:2:18\n ema: 0.5 # shared/base.yaml:2:16'
[ "$origins" = "$wanted" ] || fail "config of an including file: $origins"
answers 0 'including.yaml: valid' "$pipeline" validate including.yaml
printf 'include: shared/none.yaml\n' >including.yaml
answers 2 'including.yaml:1:10: include: cannot open shared/none.yaml' "$pipeline" validate including.yaml
env PLM_SEED=8 "$pipeline" config --json --set trainer.steps=5 >got
[ "$(jq -c '[.seed.value, .seed.origin, ."trainer.steps".value, ."trainer.ema".origin]' got)" = \
  '[8,"PLM_SEED",5,"default"]' ] || fail "config --json: $(jq -c '.seed' got)"
"$pipeline" config --set seed=9 --set 'trainer.optimizer={name: adamw}' >first.yaml
"$pipeline" config first.yaml | sed 's/ *#.*//' >second
sed 's/ *#.*//' first.yaml | diff - second || fail "config's output does not load as the same"
grep -q 'betas: \[0.9, 0.95\]' second || fail "adamw's betas"
answers 0 'PLM_TRAINER_STEPS; on resume: changes the run' "$pipeline" config --manual
[ "$("$pipeline" config --manual | grep -c PLM_VERSION)" -eq 0 ] || fail "PLM_VERSION is listed, but it sets nothing"
answers 2 'option "--run" needs an argument (DIR), but got an empty word' "$pipeline" ps --run ''
[ "$(cd / && "$pipeline" config "$OLDPWD/pipeline.yaml" | awk '$1 == "run:" {print $2}')" = \
  "$PWD/runs/demo" ] || fail "relative paths are not relative to the file's folder"
[ "$("$pipeline" config --run here | awk '$1 == "run:" {print $2}')" = "$PWD/here" ] ||
  fail "--run is not relative to the working directory"

for option in -c --run --set --color; do # the last word, and no command yet
  answers 2 "\"$option\" needs an argument: " "$pipeline" "$option"
done

answers 2 'but got an empty word' "$pipeline" up --dry-run --run ''
answers 2 'but got an empty word' "$pipeline" ps -c=

# ---- without a run ----
answers 2 '"trainr" is not a stage, and there is no such file' "$pipeline" up trainr
answers 3 'is not running' "$pipeline" ps --run .
answers 0 'no metrics of the trainer yet' "$pipeline" metrics trainer --run .
answers 3 'no run in' "$pipeline" down --run nowhere
answers 1 'there are no logs in' "$pipeline" logs --run nowhere
answers 2 'is not a stage' "$pipeline" restart trainr --run nowhere
