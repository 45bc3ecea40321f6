#!/usr/bin/env bash
# `make deb`: the package is the same twice, lintian finds no error and no warning in it, and dpkg installs it in
# a clean Debian that has only the packages it depends on. There a run trains, and a purge leaves no file.
. "$PLM_ROOT/tests/support/shell/lib.sh"
skip() {
  echo "$*"
  exit 77
}
case $PLM_BUILD in */asan | */tsan) skip "no package is made of sanitized programs" ;; esac
command -v dpkg-shlibdeps >/dev/null || skip "dpkg-dev is not installed: no package was made"

# ---- the package ----
make_deb() { make -s -C "$PLM_ROOT" "BUILD=$PLM_BUILD" "DEB=$PLM_TMP/$1" deb-files CUDA=0; }
make_deb first >made || fail "make deb-files"
package=$(sed -n 's/^made //p' made)
[ -s "$package" ] || fail "make did not say where the package is: $(cat made)"
(umask 077 && make_deb second >/dev/null)
cmp "$package" second/*.deb || fail "the same files made another package"

version=$(plm-pipeline --version | cut -d ' ' -f 2)
[ "$(dpkg-deb -f "$package" Version)" = "$version" ] || fail "the package does not have version $version"
dpkg-deb -f "$package" Depends >depends
says depends 'libzmq5'
! grep -E 'mpi|cu(da|blas)' depends || fail "the package depends on Open MPI or CUDA: $(cat depends)"
if [ -e "$PLM_BUILD/lib/plm-pipeline/libplm_mpi.so" ]; then
  dpkg-deb -f "$package" Recommends >recommends
  says recommends 'libopenmpi[^,]*, openmpi-bin$'
fi
dpkg-deb -c "$package" >contents
! grep -vE '^[^ ]+ root/root ' contents || fail "files of another owner"
! grep -vE '^(d|-)r[w-][x-]r-[x-]r-[x-] ' contents || fail "files with other modes"
says contents ' ./usr/share/man/man1/plm-pipeline-up.1.gz$'

if command -v lintian >/dev/null; then
  # lintian warns root, and exits with 2 for an error or a warning
  lintian --no-cfg --fail-on error,warning "$package" >out 2>err || fail "lintian: $(cat out err)"
  [ ! -s out ] || fail "lintian: $(cat out)"
else
  echo "lintian is not installed: the package was not checked by it"
fi

# ---- a clean Debian ----
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed: the package was not installed anywhere"
# shellcheck disable=SC1091
suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME-}") || true
[ -n "$suite" ] || skip "this is not a released Debian: the package was not installed anywhere"

small_fasta small.fasta 200
small_config pipeline.yaml patch_unet
# What happens inside. The user plm runs the pipeline, and none of the files of this machine is in sight.
cat >inside.sh <<'S'
set -eu
files() { # every file but those of dpkg itself, the logs, and the copies of passwd and group
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log \) \
    -prune -o ! -path '/etc/*-' ! -path /etc/.pwd.lock ! -type d -printf '%y %m %u %g %s %p %l\n' -o \
    -type d -printf 'd %m %u %g %p\n' | LC_ALL=C sort
}
files >/tmp/files.before
cat /etc/passwd /etc/group >/tmp/users.before
dpkg -i /tmp/plm-pipeline.deb
[ -z "$(dpkg --verify plm-pipeline)" ]
grep '^plm:' /etc/passwd
plm-pipeline --version
zcat /usr/share/man/man1/plm-pipeline.1.gz | grep -c 'plm\\-pipeline'
install -d -o plm /tmp/run
cp /tmp/small.fasta /tmp/pipeline.yaml /tmp/run
as_plm() { setpriv --reuid=plm --regid=plm --clear-groups env -C /tmp/run HOME=/tmp/run "$@"; }
as_plm plm-pipeline ingest small.fasta --corpus corpus --split train=0.8,valid=0.1,test=0.1 -q
as_plm plm-pipeline up
ls -d /tmp/run/run/checkpoints/step_00000012
as_plm plm-pipeline doctor || [ $? -le 2 ]
code=0
as_plm plm-pipeline up --run two --set trainer.ranks=2 2>/tmp/ranks || code=$?
[ "$code" -eq 2 ]
grep -i mpirun /tmp/ranks
mkdir -p /etc/plm-pipeline /var/lib/plm-pipeline/kept
dpkg --purge plm-pipeline | tee /tmp/purged
grep 'the runs in /var/lib/plm-pipeline and the user plm were kept' /tmp/purged
grep '^plm:' /etc/passwd
rmdir /var/lib/plm-pipeline/kept
dpkg -i /tmp/plm-pipeline.deb
dpkg --purge plm-pipeline
files >/tmp/files.after
cat /etc/passwd /etc/group >/tmp/users.after
diff /tmp/files.before /tmp/files.after
diff /tmp/users.before /tmp/users.after
echo INSIDE-DONE
S
cat >customize.sh <<'S'
set -eu
cp "$2/small.fasta" "$2/pipeline.yaml" "$2/inside.sh" "$1/tmp"
cp "$3" "$1/tmp/plm-pipeline.deb"
echo INSIDE-BEGINS
chroot "$1" sh /tmp/inside.sh
S
needs=$(sed -E 's/ \([^)]*\)//g; s/ //g' depends)
code=0
TMPDIR=$PLM_TMP mmdebstrap --quiet --variant=essential --format=null --dpkgopt=force-unsafe-io \
  --include="$needs,passwd,systemd-standalone-sysusers" \
  --customize-hook="sh '$PLM_TMP/customize.sh' \"\$1\" '$PLM_TMP' '$package'" \
  "$suite" /dev/null "deb http://deb.debian.org/debian $suite main" >inside.log 2>&1 </dev/null || code=$?
if ! grep -x INSIDE-BEGINS inside.log >/dev/null; then
  skip "no clean Debian could be made here: $(grep -E '^(E|W|Err)' inside.log | tail -n 1)"
fi
[ "$code" -eq 0 ] && grep -x INSIDE-DONE inside.log >/dev/null || {
  tail -n 60 inside.log >&2
  fail "the package in a clean Debian"
}
