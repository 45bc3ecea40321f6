#!/usr/bin/env bash
# `up --resume never` and `--resume PATH` that are killed at any rename: the next `up` finishes the move,
# and no checkpoint and no line of the metrics is lost. Until then, no stage writes to the run.
. "$PLM_ROOT/tests/support/shell/lib.sh"
[[ $(basename "$PLM_BUILD") == build ]] && command -v gcc >/dev/null || {
  echo "no shim under sanitizers"
  exit 77
}

small_corpus corpus
small_config pipeline.yaml unet
expect 0 plm-pipeline up pipeline.yaml
mv run before

# The descriptors of the stages have two digits, as under a parent that leaves some of its own open.
exec 3</dev/null 4<&3 5<&3 6<&3 7<&3 8<&3 9<&3
# The stages of the runs that follow: the trainer has nothing to do.
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin/
printf '#!/usr/bin/env bash\necho >&"$PLM_READY_FD"\ncp done.json run/DONE\n' >bin/plm-trainer
chmod +x bin/plm-trainer
cp before/DONE done.json

cat >kill.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
int rename(const char *from, const char *to)
{
  static int count;
  if (++count == atoi(getenv("KILL_AT_RENAME"))) raise(SIGKILL);
  return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
C
gcc -shared -fPIC -o kill.so kill.c -ldl

steps_in() { # FILE: the steps of its lines
  if [ -e "$1" ]; then jq -r .step "$1" | tr '\n' ' '; fi
}
checkpoints_in() { (cd "$1/checkpoints" 2>/dev/null && echo step_*); }
all_files() { # what must be somewhere: the same before and after
  find "$1" -name trainer.jsonl -exec cat {} + | sort
  find "$1" -name evaluator.jsonl -exec cat {} + | sort
  find "$1" -name 'step_*' -printf '%f\n' | sort
}
all_files before >wanted

# refused: if the move is unfinished, a trainer and an evaluator that are started by hand leave the run
# as it is, and say what to do; once that is done they can run, so they end with 6
refused=0
refused() {
  local program
  [ -n "$(find run/previous-* -name MOVING -size +0 2>/dev/null)" ] || return 0
  refused=$((refused + 1))
  find run -printf '%p %s %T@\n' | sort >as_it_was
  for program in plm-trainer plm-evaluator; do
    expect 6 "$program" -c pipeline.yaml --run run
    says err 'run/previous-1: .plm-pipeline up --resume. was interrupted while it moved the earlier run here'
    says err 'run `plm-pipeline up`, which finishes the move'
    find run -printf '%p %s %T@\n' | sort | diff as_it_was - || fail "$program changed the run"
  done
}

# at_each_rename ARGUMENT… : up with these, killed at each rename; then up without them
at_each_rename() {
  local at code
  for ((at = 1; at < 40; at++)); do
    wait_for 20 nobody_left "$PWD/run" # a stage of a killed supervisor
    rm -rf run
    cp -a before run
    code=0
    KILL_AT_RENAME=$at LD_PRELOAD=$PWD/kill.so bin/plm-pipeline up pipeline.yaml trainer "$@" \
      >out 2>err </dev/null || code=$?
    [ $code -eq 137 ] || break
    refused
    bin/plm-pipeline up pipeline.yaml trainer >out 2>err </dev/null || fail "up after a kill at rename $at: $(cat err)"
    [ -z "$(find run/previous-* -name 'MOVING*')" ] || fail "rename $at: the move is not finished"
    all_files run | diff wanted - >difference || fail "rename $at: $(cat difference)"
    "$check" || fail "rename $at: $(ls run run/previous-*)"
  done
  [ "$at" -gt 4 ] && [ "$code" -eq 0 ] || fail "killed at $at renames only, then $code: $(cat err)"
}

everything_moved() {
  # a kill before the first rename of the move leaves the run as it was
  [ ! -d run/previous-1/checkpoints ] || [ "$(checkpoints_in run/previous-1)" = "$(checkpoints_in before)" ] || return 1
  [ ! -d run/previous-1/checkpoints ] || [ ! -e run/trainer.jsonl ]
}
check=everything_moved
at_each_rename --resume never
everything_moved && [ -d run/previous-1/checkpoints ] || fail "never moved nothing"

later_moved() {
  [ ! -e run/previous-1/trainer.jsonl ] ||
    [ "$(steps_in run/trainer.jsonl)|$(steps_in run/previous-1/trainer.jsonl)" = '1 2 3 4 |5 6 7 8 9 10 11 12 ' ]
}
check=later_moved
at_each_rename --resume run/checkpoints/step_00000004
[ -e run/previous-1/trainer.jsonl ] || fail "--resume PATH moved no lines"
[ "$refused" -gt 4 ] || fail "the stages were started $refused times in an unfinished move"
