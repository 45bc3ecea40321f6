#!/usr/bin/env bash
# A failing fsync makes a checkpoint fail with a message, training continues and earlier checkpoints are
# intact. A corrupt newest checkpoint is skipped. (A full disk: test_full_disk.sh.)
. "$PLM_ROOT/tests/support/trainer.sh"
small_corpus corpus
trainer_config transformer
reference=$PLM_TMP/reference
run_undisturbed "$reference"

# ---- a failing fsync, injected by a preloaded library -------------------------------------------
if [[ $(basename "$PLM_BUILD") == build ]] && command -v gcc >/dev/null; then
  cat >"$PLM_TMP/fsync.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int descriptor)
{
  const char *flag = getenv("FSYNC_FAILS_WHILE");
  if (flag != NULL && access(flag, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(descriptor);
}
C
  gcc -shared -fPIC -o "$PLM_TMP/fsync.so" "$PLM_TMP/fsync.c" -ldl || fail "the shim does not build"
  run=$PLM_TMP/fsync
  start_packer "$run"
  export FSYNC_FAILS_WHILE=$PLM_TMP/fsync-fails
  LD_PRELOAD=$PLM_TMP/fsync.so start_trainer "$run" \
    --set trainer.checkpoint.max_failed_checkpoints=100
  until_lines "$run" 12
  touch "$FSYNC_FAILS_WHILE" # the checkpoint of step 20 fails, perhaps others near it
  while ! grep -q "checkpoint 20 FAILED" "$PLM_TMP/trainer.log"; do
    kill -0 "$trainer_pid" 2>/dev/null || fail "the trainer ended at a failed fsync"
  done
  rm "$FSYNC_FAILS_WHILE"
  wait "$trainer_pid" || fail "the run with a failed fsync ended with $?"
  [ ! -e "$run/checkpoints/step_00000020" ] || fail "a checkpoint without fsync was published"
  same_run "$reference" "$run" 60
  # the evaluator distinguishes it from one that was deleted
  rm -r "$run/checkpoints/step_00000040"
  "$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set evaluator.max_tokens=500 \
    >"$PLM_TMP/evaluator.log" 2>&1 || fail "the evaluator of a run with a failed fsync ended with $?"
  skipped() { jq -r "select(.step == $1).skipped" "$run/evaluator.jsonl"; }
  [[ $(skipped 20) == "not published: "*"Input/output error"* ]] || fail "step 20: $(skipped 20)"
  [ "$(skipped 40)" = "deleted before evaluation" ] || fail "step 40: $(skipped 40)"

  # too many failures in a row end the run, and the last good checkpoint is intact
  run=$PLM_TMP/fsync-for-ever
  kill "$packer_pid"
  start_packer "$run"
  LD_PRELOAD=$PLM_TMP/fsync.so start_trainer "$run" --set trainer.checkpoint.every=2 \
    --set trainer.checkpoint.max_failed_checkpoints=2
  until_lines "$run" 12
  touch "$FSYNC_FAILS_WHILE"
  wait "$trainer_pid"
  status=$?
  rm "$FSYNC_FAILS_WHILE"
  [ "$status" -eq 1 ] || fail "the run with failing checkpoints ended with $status"
  grep -q "checkpoints in a row failed" "$PLM_TMP/trainer.log" || fail "no reason given"
  run_trainer "$run" --set trainer.checkpoint.every=10 || fail "it does not resume"
  kill "$packer_pid"
  diff <(exact_metrics "$reference/trainer.jsonl") <(exact_metrics "$run/trainer.jsonl") || fail "the resumed metrics differ"
else
  echo "no shim under sanitizers"
fi

# ---- the metrics cannot be written, so several checkpoints in a row fail before they begin ---------
run=$PLM_TMP/metrics
: >"$PLM_TMP/trainer.log"
start_packer "$run"
start_trainer "$run" --set trainer.steps=1000 --set trainer.checkpoint.max_failed_checkpoints=100
until_lines "$run" 12
prlimit --pid "$trainer_pid" --fsize=1024: # trainer.jsonl is longer already
while [ "$(grep -c 'checkpoint [0-9]* FAILED' "$PLM_TMP/trainer.log")" -lt 2 ]; do
  kill -0 "$trainer_pid" 2>/dev/null || fail "the trainer ended although it may miss 100 checkpoints"
done
prlimit --pid "$trainer_pid" --fsize=unlimited:
wait "$trainer_pid" || fail "the run whose metrics could not be written for a while ended with $?"
kill "$packer_pid"
start_packer "$run"
"$PLM_BIN/plm-evaluator" -c "$PLM_TMP/pipeline.yaml" --run "$run" --set trainer.steps=1000 \
  --set evaluator.max_tokens=500 >"$PLM_TMP/evaluator.log" 2>&1 || fail "the evaluator ended with $?"
kill "$packer_pid"
failed=$(grep -c 'checkpoint [0-9]* FAILED' "$PLM_TMP/trainer.log")
skipped=$(grep -c 'not published: .*File too large' "$run/evaluator.jsonl")
[ "$skipped" -eq "$failed" ] || fail "$failed checkpoints failed; reported: $(grep skipped "$run/evaluator.jsonl")"

# ---- a corrupt newest checkpoint ---------------------------------------------------------------
run=$PLM_TMP/corrupt
start_packer "$run"
start_trainer "$run"
until_lines "$run" 34
kill -9 "$trainer_pid"
wait "$trainer_pid" 2>/dev/null
newest=$(basename "$(ls -d "$run"/checkpoints/step_* | tail -n 1)")
printf 'x' | dd of="$run/checkpoints/$newest/optimizer.safetensors" bs=1 seek=5000 conv=notrunc \
  2>/dev/null
run_trainer "$run" || fail "the run over a corrupt checkpoint ended with $?"
grep -q "$newest" "$PLM_TMP/trainer.log" || fail "nobody names the corrupt checkpoint"
[ -e "$run/checkpoints/.bad-$newest" ] || fail "the corrupt one was not moved aside"
same_run "$reference" "$run" 60
kill "$packer_pid"

# if all checkpoints are corrupt, the trainer refuses to start
for name in "$run"/checkpoints/step_*; do echo >>"$name/MANIFEST"; done
rm "$run/DONE"
! run_trainer "$run" || fail "a run without a valid checkpoint continued"
