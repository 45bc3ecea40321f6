#!/usr/bin/env bash
# The systemd units: installed with the paths of the programs; systemd-analyze finds no mistake and rates both
# as hardened; their command lines work with the files that the units' comments describe.
. "$PLM_ROOT/tests/support/shell/lib.sh"
prefix=$PLM_TMP/opt
make -s -C "$PLM_ROOT" "BUILD=$PLM_BUILD" PREFIX="$prefix" install >/dev/null
units=$prefix/lib/systemd/system
packer=$units/plm-packer.service pipeline=$units/plm-pipeline@.service
[ -s "$prefix/lib/sysusers.d/plm-pipeline.conf" ] || fail "no sysusers.d file"
grep -q @BIN@ "$units"/* && fail "a unit without the path of its program"

# command UNIT: the words of its ExecStart
command_of() { sed -n 's/^ExecStart=//p' "$1"; }

# ---- the packer's command line, with credentials as systemd provides them ------------------------------
small_corpus corpus
plm-pipeline keys keys --client node7 >/dev/null
mkdir credentials
cp keys/clients/node7.key credentials/packer.key
cp keys/server.pub credentials/server.pub
for file in packer.key server.pub; do
  grep -qx "LoadCredential=$file:/etc/plm-pipeline/$file" "$packer" || fail "the unit does not load $file"
done
chmod 400 credentials/*
chmod 500 credentials
line=$(command_of "$packer")
line=${line//%d/$PLM_TMP/credentials}
mkfifo ready
exec 7<>ready
env -i PATH=/usr/bin:/bin CORPUS="$PLM_TMP/corpus" CONNECT=tcp://127.0.0.1:9 OPTIONS='--threads 1' PLM_READY_FD=7 \
  bash -c "cd / && exec $line" >packer.out 2>packer.err &
wanted=$!
timeout 60 head -n 1 <&7 >/dev/null || fail "the packer is not ready: $(cat packer.err)"
[ "$(readlink "/proc/$wanted/exe")" = "$prefix/bin/plm-packer" ] || fail "another program runs"
# MemoryDenyWriteExecute would refuse such memory
if [ "$PLM_BUILD" = "${PLM_BUILD%/asan}" ] && [ "$PLM_BUILD" = "${PLM_BUILD%/tsan}" ]; then
  ! grep ' rwx' "/proc/$wanted/maps" || fail "the packer has memory that is writable and executable"
fi
kill -TERM "$wanted"
drained "$wanted" "the packer"
grep -qx 'SuccessExitStatus=143' "$packer" || fail "systemd would call a stopped packer a failure"
chmod 700 credentials

# ---- the pipeline's command line -----------------------------------------------------------------------
mkdir state
small_config state/pipeline.yaml transformer
line=$(command_of "$pipeline")
(cd state && expect 0 $line --set corpus="$PLM_TMP/corpus" --dry-run) || fail "the pipeline's command line"
says state/out "$PLM_TMP/state/run"

# ---- systemd-analyze -----------------------------------------------------------------------------------
command -v systemd-analyze >/dev/null || { echo "no systemd-analyze: the units were not checked"; exit 77; }
expect 0 systemd-analyze verify --man=no "$packer" "$pipeline"
[ ! -s err ] || fail "systemd-analyze verify: $(cat err)"
for unit in "$packer" "$pipeline"; do
  expect 0 systemd-analyze security --offline=true --threshold=25 --no-pager "$unit"
  says out 'Overall exposure level .* OK'
done
