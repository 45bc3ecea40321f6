#!/usr/bin/env bash
# `make gpu-check` on a machine that lacks something: it says what, before anything is built, and packed libraries
# (tests/gpu/pack.sh) take its place. An incomplete pack is noticed where it is made. Nothing is downloaded here.
. "$PLM_ROOT/tests/support/shell/own_mounts.sh"
. "$PLM_ROOT/tests/support/shell/lib.sh"
export PYTHONDONTWRITEBYTECODE=1
for tool in python3 objdump; do
  command -v $tool >/dev/null || { echo "no $tool"; exit 77; }
done
header=/usr/include/cjson
library=$(realpath "$(gcc -print-file-name=libcsv.so)")
if [ ! -e $header/cJSON.h ] || [ ! -e "$library" ]; then
  echo "cJSON or libcsv is not installed under /usr"
  exit 77
fi
check() { TMPDIR=$PLM_TMP PLM_VENV='' python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --build "$PLM_BUILD" --out "$PLM_TMP/$1" "${@:2}"; }

# A folder as pack.sh makes it, with two of the libraries.
triplet=$(gcc -print-multiarch)
mkdir -p "libs/usr/include/cjson" "libs/usr/lib/$triplet"
cp $header/*.h libs/usr/include/cjson/
cp -a "$(dirname "$library")"/libcsv.so* "$(dirname "$library")"/libcjson.so* "libs/usr/lib/$triplet/"

expect 0 check whole --needs
says out '^\| Needs .*\| done \|.* 1 passed'

# Without them the check ends before the build, and says what is missing.
mount -t tmpfs none $header
echo "no library" >text
mount --bind text "$library"
expect 1 check bare
says out '^\| Needs .*\*\*1 FAILED'
says out '2 are missing: install .*make deps.*tests/gpu/pack.sh FOLDER.*make gpu-check LIBS=FOLDER'
says out '^\| .cjson/cJSON.h. and .libcjson. \(libcjson-dev\) \| JSON \| does not compile: .*cJSON.h: No such file'
says out '^\| .csv.h. and .libcsv. \(libcsv-dev\) \|.*\| does not compile: .*libcsv'
! grep -q '^| Build' out || fail "it builds although something is missing"
cmp out bare/rehearsal.md || fail "the report is not what was printed"

# A tool that only some parts need costs no others: they are named, and the check does not fail.
mkdir few
for tool in make gcc g++ bash ps pgrep python3 git as ld cc1; do
  path=$(command -v $tool) && ln -s "$path" few/
done
umount $header "$library"
check_with_few() { env PATH="$PWD/few" TMPDIR="$PLM_TMP" PLM_VENV='' python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --needs \
  --build "$PLM_BUILD" --out "$PLM_TMP/few-out" >out; }
check_with_few || fail "a missing jq fails the check: $(cat out)"
says out '^\| .jq. \| test scripts \| not on the PATH \|$'
says out '^- left out: all [0-9]+ things .*1 are missing'
rm few/make
check_with_few && fail "the check does without make"
says out '^- \*\*FAILED\*\*: all [0-9]+ things .*2 are missing.*without make: .python3 tests/gpu/gpu_check.py --libs FOLDER'
mount -t tmpfs none $header
mount --bind text "$library"

# With the folder nothing is missing, also when programs start.
expect 0 check packed --needs --libs libs
says out 'Libraries are also taken from'

# A library that is there, but not what it needs itself: the program does not start.
mv "libs/usr/lib/$triplet/libcsv.so.3" kept
expect 1 check broken --needs --libs libs
says out 'libcsv.*(does not start|does not compile)'
mv kept "libs/usr/lib/$triplet/libcsv.so.3"

# pack.sh packs what the list names, and looks whether it is complete.
needs=$PLM_ROOT/tests/gpu/check_needs.py
expect 0 python3 "$needs" --packages
for package in liblmdb-dev libzmq3-dev libdnnl-dev jq procps make; do says out "^$package$"; done
grep -q 'check_needs.py' "$PLM_ROOT/tests/gpu/pack.sh" || fail "pack.sh has a list of its own"
expect 1 python3 "$needs" --packed libs
says err 'lacks lmdb.h of liblmdb-dev'
says err 'lacks jq of jq'
says err 'lacks ps of procps'
mkdir -p libs/bin
cp "$(command -v ps)" libs/bin # where the package has it
expect 1 python3 "$needs" --packed libs
! grep -q 'lacks ps of' err || fail "ps in bin is said to be missing"
says err 'lacks pgrep of procps'
! grep -qE 'lacks (cjson|lib(csv|cjson)\.so)' err || fail "what is there is said to be missing: $(cat err)"
cp -a "$(gcc -print-file-name=libzmq.so)" "$(realpath "$(gcc -print-file-name=libzmq.so)")" "libs/usr/lib/$triplet/"
expect 1 python3 "$needs" --packed libs
says err 'lacks lib[a-z0-9_.-]*, which libzmq.so.* needs'
[ -z "$(ls -d gpu-check-* 2>/dev/null)" ] || fail "a folder is left behind"
