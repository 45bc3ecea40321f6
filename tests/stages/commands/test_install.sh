#!/usr/bin/env bash
# `make install` puts the programs, their completions and the manual below DESTDIR and PREFIX; the
# installed plm-pipeline finds its siblings there; `make uninstall` leaves nothing behind.
. "$PLM_ROOT/tests/support/lib.sh"
to=(-s -C "$PLM_ROOT" "BUILD=$PLM_BUILD" "DESTDIR=$PLM_TMP/package" PREFIX=/opt/plm)
installed=$PLM_TMP/package/opt/plm

make "${to[@]}" install-files >/dev/null
for program in plm-pipeline plm-packer plm-trainer plm-evaluator; do
  [ -x "$installed/bin/$program" ] || fail "bin/$program is not installed"
  "$installed/bin/$program" --version >/dev/null || fail "the installed $program does not run"
done
[ -s "$installed/share/bash-completion/completions/plm-pipeline" ] || fail "no completion for bash"
[ -s "$installed/share/zsh/site-functions/_plm-pipeline" ] || fail "no completion for zsh"
[ -s "$installed/share/fish/vendor_completions.d/plm-pipeline.fish" ] || fail "no completion for fish"
for page in man1/plm-pipeline.1 man1/plm-pipeline-up.1 man1/plm-trainer.1 man5/pipeline.yaml.5; do
  [ -s "$installed/share/man/$page" ] || fail "no manual page $page"
done
version=$("$installed/bin/plm-pipeline" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
[ "$(PKG_CONFIG_PATH=$installed/share/pkgconfig pkg-config --modversion plm-pipeline)" = "$version" ] ||
  fail "pkg-config does not know version $version"
[ -z "$(PKG_CONFIG_PATH=$installed/share/pkgconfig pkg-config --cflags --libs plm-pipeline | tr -d ' ')" ] ||
  fail "pkg-config names a library, but there is none"
[ -s "$installed/share/doc/plm-pipeline/README.md" ] || fail "no README.md"

# embed starts plm-evaluator, which it has to find beside itself
expect 1 "$installed/bin/plm-pipeline" embed --checkpoint "$PLM_TMP/none" /dev/null --output "$PLM_TMP/out.npy"
says err "^plm-evaluator embed: .*there is no such folder"

make "${to[@]}" uninstall
left=$(find "$PLM_TMP/package" -type f)
[ -z "$left" ] || fail "uninstall left $left"
