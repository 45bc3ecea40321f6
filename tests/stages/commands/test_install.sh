#!/usr/bin/env bash
# `make install` puts the programs, their libraries, completions and the manual below DESTDIR and PREFIX, where
# everyone can read them, and compiles nothing; the installed plm-pipeline finds its siblings and libraries there; nothing of an
# earlier version stays; `make uninstall` leaves nothing behind.
. "$PLM_ROOT/tests/support/shell/lib.sh"
to=(-s -C "$PLM_ROOT" "BUILD=$PLM_BUILD" "DESTDIR=$PLM_TMP/a package" PREFIX=/opt/plm CUDA=0)
installed="$PLM_TMP/a package/opt/plm"

mkdir -p "$installed/lib/plm-pipeline" "$installed/share/man/man1"
touch "$installed/lib/plm-pipeline/libplm_cuda.so" "$installed/share/man/man1/plm-pipeline-formercommand.1"
(umask 077 && make "${to[@]}" install >said)
says said "^installed into .*/a package/opt/plm: plm-pipeline plm-packer plm-trainer plm-evaluator\$"
says said 'without the CUDA backend'
[ ! -e "$installed/lib/plm-pipeline/libplm_cuda.so" ] || fail "the CUDA library of an earlier version stayed"
[ ! -e "$installed/share/man/man1/plm-pipeline-formercommand.1" ] || fail "a page of an earlier version stayed"
closed=$(find "$PLM_TMP/a package" ! -perm -o=r)
[ -z "$closed" ] || fail "only the owner can read $closed"
for program in plm-pipeline plm-packer plm-trainer plm-evaluator; do
  [ -x "$installed/bin/$program" ] || fail "bin/$program is not installed"
  "$installed/bin/$program" --version >/dev/null || fail "the installed $program does not run"
done
for program in plm-pipeline plm-packer plm-trainer plm-evaluator; do
  matches "^complete .* $program\$" <"$installed/share/bash-completion/completions/$program" || fail "no completion for bash"
  matches "^#compdef $program\$" <"$installed/share/zsh/site-functions/_$program" || fail "no completion for zsh"
  matches "^complete -c $program " <"$installed/share/fish/vendor_completions.d/$program.fish" || fail "no completion for fish"
done
for page in man1/plm-pipeline.1 man1/plm-pipeline-up.1 man1/plm-trainer.1 man5/pipeline.yaml.5; do
  [ -s "$installed/share/man/$page" ] || fail "no manual page $page"
done
version=$("$installed/bin/plm-pipeline" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
[ "$(PKG_CONFIG_PATH=$installed/share/pkgconfig pkg-config --modversion plm-pipeline)" = "$version" ] ||
  fail "pkg-config does not know version $version"
[ -z "$(PKG_CONFIG_PATH=$installed/share/pkgconfig pkg-config --cflags --libs plm-pipeline | tr -d ' ')" ] ||
  fail "pkg-config names a library, but there is none"
documents=$installed/share/doc/plm-pipeline
[ -s "$documents/README.md" ] || fail "no README.md"
for file in grafana-dashboard.json alerts.yml; do
  [ -s "$documents/doc/$file" ] || fail "no $file"
done
for link in $(grep -ohE '\]\([^)h#:][^)#:]*' "$documents/README.md" | cut -c 3-); do
  [ -e "$documents/$link" ] || fail "the installed README.md refers to $link, which is not installed"
done

# embed starts plm-evaluator, which it has to find beside itself
expect 1 "$installed/bin/plm-pipeline" embed --checkpoint "$PLM_TMP/none" /dev/null --output "$PLM_TMP/out.npy"
says err "^plm-evaluator embed: .*there is no such folder"

# The engine of several ranks is found beside the programs, and missed there.
small_config pipeline.yaml transformer
small_corpus corpus 60
dry_run=(env -u PLM_MPI_LIBRARY "$installed/bin/plm-pipeline" up --dry-run --set trainer.ranks=2)
engine=$installed/lib/plm-pipeline/libplm_mpi.so
if command -v mpirun >/dev/null; then
  if [ -e "$engine" ]; then
    expect 0 "${dry_run[@]}"
    rm "$engine"
  fi
  expect 2 "${dry_run[@]}"
  says err "$engine does not exist"
fi

# It installs the libraries that were built, whatever it would build itself, and compiles nothing. CUDA=0 leaves one
# out, and `make CUDA=0` removes it. The emulated backend stands for the real one, which needs nvcc.
mkdir -p built/lib/plm-pipeline
ln -s "$(realpath "$PLM_BUILD/bin")" built/bin
module=$PLM_TMP/here/lib/plm-pipeline/libplm_cuda.so
again=(env -u CUDA -u MAKEFLAGS -u MFLAGS make -s -C "$PLM_ROOT" "BUILD=$PLM_TMP/built" PREFIX="$PLM_TMP/here" NVCC=false)
expect 0 "${again[@]}" install
says out 'without the CUDA backend'
[ ! -e "$module" ] || fail "a library that was not built was installed"
cp "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" built/lib/plm-pipeline/libplm_cuda.so
find built | sort >before
expect 0 "${again[@]}" NVCC= install
cmp built/lib/plm-pipeline/libplm_cuda.so "$module" || fail "the library that was built was not installed"
find built | sort | diff before - || fail "make install made files in the build folder"
expect 0 "${again[@]}" CUDA=0 install
[ ! -e "$module" ] || fail "CUDA=0 did not leave out the CUDA backend"
touch built/lib/plm-pipeline/libplm_mpi.so
expect 0 "${again[@]}" CUDA=0 left-out
[ "$(ls built/lib/plm-pipeline)" = libplm_mpi.so ] || fail "after make CUDA=0 there is $(ls built/lib/plm-pipeline)"
rm built/bin
expect 2 "${again[@]}" install
says err 'there is no .*/built/bin/plm-pipeline; run `make` first'

# A folder without a leading slash would be wrong in the systemd units.
expect 2 make -s -C "$PLM_ROOT" "BUILD=$PLM_BUILD" PREFIX=opt/plm install
says err 'PREFIX=opt/plm is not an absolute path'
[ ! -e "$PLM_ROOT/opt" ] || fail "a refused installation made a folder"

make "${to[@]}" uninstall
left=$(find "$PLM_TMP/a package" -type f)
[ -z "$left" ] || fail "uninstall left $left"
