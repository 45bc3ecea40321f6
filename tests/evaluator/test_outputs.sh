#!/usr/bin/env bash
# --output of embed, generate, score and export: a pipe, a device or a link to one is written and stays
# what it is, and `-` is standard output. The devices of the machine are never named: a command that
# replaced them would break it.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 120
small_config pipeline.yaml unet
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=1
checkpoint=$PWD/run/checkpoints/latest
printf '>a\nLAGVSERT\n>b\nMKV\n' >in.fasta
mkdir outputs
cd outputs

# run_task TASK OUTPUT [ARGUMENT…]
run_task() {
  local task=$1 output=$2
  shift 2
  case $task in
    embed) set -- ../in.fasta "$@" ;;
    generate) set -- --length 12 --count 3 "$@" ;;
    score) set -- --wild-type LAGVSERT --all "$@" ;;
  esac
  plm-pipeline "$task" --checkpoint "$checkpoint" --threads 1 --output "$output" "$@"
}

mknod null c 1 3 2>/dev/null && : 2>/dev/null >null || rm -f null

for task in embed generate score; do
  expected=expected
  [ $task != embed ] || expected=expected.safetensors
  expect 0 run_task $task $expected
  mv $expected ../wanted

  for name in pipe link; do
    rm -f pipe link
    mkfifo pipe
    [ $name = pipe ] || ln -s pipe link
    cat pipe >../got &
    reader=$!
    run_task $task $name >../out 2>../err || fail "$task to a $name: $(cat ../err)"
    [ -p pipe ] || fail "$task replaced the pipe"
    wait $reader
    cmp ../wanted ../got || fail "$task wrote something else to a $name"
  done
  [ -L link ] || fail "$task replaced the link"
  rm -f pipe link

  for name in - /dev/stdout /dev/fd/1; do
    run_task $task $name >../got 2>../err || fail "$task to $name: $(cat ../err)"
    cmp ../wanted ../got || fail "$task wrote something else to $name"
    expect 2 run_task $task $name --json
    says err 'would both write to standard output'
    rm out err
  done
  run_task $task - | cat >../got || fail "$task to a pipe of the shell"
  cmp ../wanted ../got || fail "$task wrote something else to a pipe of the shell"
  run_task $task /dev/fd/7 7>../got >../out 2>../err || fail "$task to a descriptor: $(cat ../err)"
  cmp ../wanted ../got || fail "$task wrote something else to a descriptor"

  if [ -c null ]; then
    run_task $task null >../out 2>../err || fail "$task to a device: $(cat ../err)"
    [ -c null ] || fail "$task replaced the device"
  else
    echo "no devices here: not tested"
  fi
  [ -z "$(find . -mindepth 1 ! -name null)" ] || fail "$task left $(find . -mindepth 1)"
done

# A device that is full ends the command with an error, on standard output as elsewhere.
if mknod full c 1 7 2>/dev/null && (: >full) 2>/dev/null; then
  for task in embed generate score; do
    expect 1 run_task $task full
    says err 'cannot write full: No space left on device'
    code=0
    run_task $task - >full 2>err || code=$?
    [ $code -eq 1 ] || fail "$task to a full standard output ended with $code"
    says err 'cannot write standard output: No space left on device'
    [ -c full ] || fail "$task replaced a device"
  done
  rm out err
fi
rm -f full

mkfifo pipe.npy
expect 2 run_task embed pipe.npy
says err 'needs a second file beside it, for the names'
expect 1 plm-pipeline export --checkpoint "$checkpoint" --output pipe.npy
says err 'it exists and is not a folder'
[ -p pipe.npy ] || fail "the pipe was replaced"
mkfifo two.npy.names.json
expect 1 run_task embed two.npy
says err 'two.npy.names.json exists and is not a file'
[ -p two.npy.names.json ] || fail "the pipe was replaced by the file of names"
[ -z "$(find . -name 'two.npy*' ! -name two.npy.names.json)" ] || fail "left $(ls two.npy*)"
for name in - /dev/stdout; do
  expect 2 plm-pipeline export --checkpoint "$checkpoint" --output $name
  says err 'an export is a folder and cannot go to standard output'
  [ ! -e ./- ] || fail "a folder was called -"
done
