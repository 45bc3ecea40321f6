#!/usr/bin/env bash
# A packer with a cache uses a copy that another process holds, waits while another process makes one, and a signal
# ends that wait with 0.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
short=(--set trainer.steps=2 --set trainer.schedule.warmup_steps=1
  --set trainer.schedule.cooldown_steps=0 --set trainer.checkpoint.every=2)
expect 0 plm-pipeline corpus corpus --cache cache --fasta
copy=$(dirname cache/*/data.mdb)
packed() { plm-packer -c pipeline.yaml --cache cache 2>packer.err & packer=$!; }
# held HOW: another process has the lock of the copy, -s for reading it and -x for making it
held() {
  flock --no-fork "$1" "$copy.lock" sleep 1000 &
  holder=$!
  locked() { ! flock -n "$copy.lock" true; }
  wait_for 30 locked
}
released() {
  kill "$holder"
  wait "$holder" 2>/dev/null || true
}

held -s
packed
expect 0 plm-trainer -c pipeline.yaml "${short[@]}"
released
kill "$packer"
drained "$packer" "the packer"

mv "$copy" moved
held -x
packed
opened() { [ "$(readlink "/proc/$packer/fd/"* | grep -c "$copy.lock\$")" -gt 0 ]; }
wait_for 30 opened
kill "$packer"
drained "$packer" "a packer that waits for a copy"
released
[ ! -e "$copy" ] || fail "it did not wait: there is a copy"
