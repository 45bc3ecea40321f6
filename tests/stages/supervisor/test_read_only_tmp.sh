#!/usr/bin/env bash
# A container whose root file system is read-only, /tmp included: `up` and doctor say which folder the control
# socket needs. On a disk that is too small, the dry run says so.
. "$PLM_ROOT/tests/support/shell/own_mounts.sh"
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 120
small_config pipeline.yaml transformer

mkdir small
mount -t tmpfs -o size=1m none small
expect 0 plm-pipeline up --dry-run pipeline.yaml --run small/run
says out '^                these do not fit: free some space'
expect 0 plm-pipeline up --dry-run pipeline.yaml
says out '^                these fit$'

# Only this folder of /tmp is used, so the mount hides nothing else.
folder=/tmp/plm-$(id -u)
mkdir -p "$folder"
chmod 700 "$folder"
mount -t tmpfs -o ro,mode=700 none "$folder"

runtime=$XDG_RUNTIME_DIR
unset XDG_RUNTIME_DIR
remedy='set XDG_RUNTIME_DIR, which is not set, to one that belongs to you, has mode 0700 and can be written$'
expect 1 plm-pipeline doctor pipeline.yaml
says out "^problem control socket +$folder: Read-only file system$"
says out "fix: the control socket needs a folder: $remedy"
expect 1 plm-pipeline up pipeline.yaml
says err "$folder: Read-only file system$"
says err "  the control socket needs a folder: $remedy"
XDG_RUNTIME_DIR=runtime expect 1 plm-pipeline up pipeline.yaml
says err 'set XDG_RUNTIME_DIR, which is not an absolute path, to'
ln -s "$runtime" /tmp/plm-test.$$
chmod 755 "$runtime"
code=0
XDG_RUNTIME_DIR=/tmp/plm-test.$$ plm-pipeline up pipeline.yaml >out 2>err || code=$?
rm /tmp/plm-test.$$
[ $code -eq 1 ] || fail "up ended with $code"
says err 'set XDG_RUNTIME_DIR, which is not a folder of yours with mode 0700, to'
