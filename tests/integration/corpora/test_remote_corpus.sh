#!/usr/bin/env bash
# A corpus on a remote file system: sshfs, over a pipe to sftp-server instead of a network. Packers refuse it unless
# they may copy it or read it in place, and either gives the bits of a local corpus. The server dies while a packer
# reads in place.
. "${PLM_ROOT:?}/tests/support/shell/own_mounts.sh"
. "$PLM_ROOT/tests/support/shell/lib.sh"
server=/usr/lib/openssh/sftp-server
command -v sshfs >/dev/null && [ -x "$server" ] && [ -w /dev/fuse ] || {
  echo "sshfs or openssh-server is not installed, or /dev/fuse cannot be used"
  exit 77
}

small_corpus corpus
small_config pipeline.yaml transformer
mkdir served shared
cp -r corpus served/corpus
printf '#!/bin/sh\nexec %s\n' "$server" >ssh
chmod +x ssh
mount_it() {
  sshfs -f -o ssh_command="$PLM_TMP/ssh" host:"$PLM_TMP/served" shared 2>sshfs.log &
  sshfs=$!
  mounted() { [ -e shared/corpus/corpus.json ] || ! kill -0 "$sshfs"; }
  wait_for 20 mounted
}
mount_it
[ -e shared/corpus/corpus.json ] || {
  echo "sshfs cannot mount here: $(cat sshfs.log)"
  exit 77
}
sed 's|^corpus:.*|corpus: shared/corpus|' pipeline.yaml >remote.yaml
same() { # RUN
  cmp "local/checkpoints/latest/model.safetensors" "$1/checkpoints/latest/model.safetensors" || fail "other weights: $1"
  cmp <(exact_metrics local/trainer.jsonl) <(exact_metrics "$1/trainer.jsonl") || fail "other metrics: $1"
}
expect 0 plm-pipeline up pipeline.yaml --run local

# ---- refused, before anything starts ----
expect 2 plm-pipeline up remote.yaml --run refused
says err 'shared/corpus lies on a remote file system \(FUSE\)'
says err 'packer\.cache: DIR.*packer\.allow_remote: true'
[ ! -e refused ] || fail "the refused run has a folder"
expect 2 plm-pipeline validate remote.yaml
says err 'remote file system \(FUSE\)'
expect 2 timeout 60 plm-packer --corpus shared/corpus --connect tcp://127.0.0.1:1 --keys local/keys
says err 'remote file system \(FUSE\)'
expect 0 plm-pipeline validate remote.yaml --set packer.instances=0
plm-pipeline -c remote.yaml doctor >out 2>err || true # other findings may be problems here
says out 'shared/corpus is on FUSE, where packers refuse it'
says out 'set packer\.cache to a folder on a local disk'
plm-pipeline -c remote.yaml doctor --set packer.allow_remote=true >out 2>err || true
says out 'shared/corpus is on FUSE, and packers read it there'
plm-pipeline -c remote.yaml doctor --set packer.instances=0 >out 2>err || true
says out 'shared/corpus is on FUSE, but no packer is started here'
sed 's|^corpus:.*|corpus: [{path: corpus, weight: 1}, {path: shared/corpus, weight: 1}]|' pipeline.yaml >list.yaml
plm-pipeline -c list.yaml doctor >out 2>err || true
says out 'shared/corpus is on FUSE, where packers refuse it'

# ---- copied: two packers share one copy, which a torn earlier one does not disturb ----
expect 0 env PLM_PACKER_CACHE="$PLM_TMP/cache" plm-pipeline up remote.yaml --run copied --scale packer=2
same copied
copies=(cache/*/data.mdb)
cmp "${copies[0]}" corpus/data.mdb || fail "the copy differs"
[ "${#copies[@]}" -eq 1 ] || fail "more than one copy: ${copies[*]}"
truncate -s 4096 "${copies[0]}"
expect 0 plm-pipeline up remote.yaml --run again --set packer.cache=cache
same again
expect 2 timeout 60 plm-packer --corpus shared/corpus --cache shared/cache --connect tcp://127.0.0.1:1 --keys local/keys
says err 'the cache shared/cache lies on a remote file system'

# ---- in place ----
expect 0 plm-pipeline up remote.yaml --run place --set packer.allow_remote=true
same place
latest=place/checkpoints/latest
expect 0 plm-pipeline evaluate --checkpoint "$latest" --corpus shared/corpus --json
jq -c 'del(.seconds)' out >there
expect 0 plm-pipeline evaluate --checkpoint "$latest" --corpus corpus --json
cmp <(jq -c 'del(.seconds)' out) there || fail "evaluate reads something else"

# ---- the server and a packer die: `up` starts the packer again until the corpus is back ----
long=(--set trainer.steps=200 --set trainer.checkpoint.every=100 --set evaluator.max_tokens=300)
rm -r local
expect 0 plm-pipeline up pipeline.yaml --run local "${long[@]}"
stopping_at 'write:*/trainer.jsonl#5' plm-pipeline up remote.yaml --run dies "${long[@]}" \
  --set packer.allow_remote=true >up.log 2>&1 </dev/null &
up=$!
child() { ps -o pid=,comm= --ppid "$up" | awk -v name="$1" '$2 ~ name {print $1}'; }
stopped() { ps -o state= -p "$(child plm-trainer)" | matches '^T'; }
wait_for 30 stopped
kill -KILL "$sshfs"
umount -l shared
kill -KILL "$(child plm-packer)"
failed() { grep -q 'packer.0 exited with' up.log; }
wait_for 30 failed
mount_it
kill -CONT "$(child plm-trainer)"
wait "$up" || fail "exit $? without the server: $(cat up.log)"
same dies
kill "$sshfs"
