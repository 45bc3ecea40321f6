#!/usr/bin/env bash
# A packer whose memory flips one bit of a sequence, after everything on its disk was checked: the trainer finds it by what
# the corpus's fingerprint proves, with nobody to compare with. It uses nothing of it, waits, saves, ends with 4, and names
# packer and document. With a sound packer beside it, the run goes on, and its bits are those of an undisturbed run.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
[[ $(basename "$PLM_BUILD") == build ]] && command -v gcc >/dev/null || {
  echo "no shim under sanitizers"
  exit 77
}
small_corpus corpus
trainer_config transformer
log=$PLM_TMP/trainer.log

# The first residue of every group of sequences that is decompressed becomes another one.
cat >flip.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
size_t ZSTD_decompressDCtx(void *context, void *to, size_t room, const void *from, size_t size)
{
  size_t (*real)(void *, void *, size_t, const void *, size_t) =
      (size_t (*)(void *, void *, size_t, const void *, size_t))dlsym(RTLD_NEXT, "ZSTD_decompressDCtx");
  const size_t written = real(context, to, room, from, size);
  ((char *)to)[0] ^= 2; /* A and C, D and F, ... */
  return written;
}
C
gcc -shared -fPIC -o flip.so flip.c -ldl || fail "the shim does not compile"

# start_damaged RUN: a packer with bad memory
# shellcheck disable=SC2034 # packer_pid is for stop_packer
start_damaged() {
  LD_PRELOAD=$PLM_TMP/flip.so "$PLM_BIN/plm-packer" -c "$PLM_TMP/pipeline.yaml" --corpus "$PLM_TMP/corpus" --run "$1" \
    >"$PLM_TMP/$1.damaged.log" 2>&1 &
  damaged_pid=$!
}

# ---- alone ----
start_damaged alone
run_trainer alone --set network.wait_packers_s=2
status=$?
kill "$damaged_pid"
wait "$damaged_pid"
[ "$status" -eq 4 ] || fail "the trainer ended with $status: $(tail -5 "$log")"
grep -q "packer .*:$damaged_pid was dropped for false data: the tokens of document [0-9]* " "$log" ||
  fail "the trainer names no packer and document: $(tail -5 "$log")"
grep -q "refuses this packer: false data: .*corpus DIR --verify" alone.damaged.log ||
  fail "the packer does not say what to do: $(cat alone.damaged.log)"
[ ! -s alone/trainer.jsonl ] || fail "a step was trained on false data"
[ -e alone/checkpoints/latest ] || fail "nothing was saved"

# ---- beside a sound one ----
run_undisturbed sound
start_damaged both
start_trainer both
since=$SECONDS
until grep -q "false data" both.damaged.log; do
  still_waiting "$since" "the damaged packer is not refused: $(cat both.damaged.log)"
done
start_packer both
wait "$trainer_pid" || fail "the trainer with a sound packer ended with $?: $(tail -5 "$log")"
kill "$damaged_pid"
wait "$damaged_pid"
stop_packer
same_run sound both "$(jq -r .step both/DONE)"
