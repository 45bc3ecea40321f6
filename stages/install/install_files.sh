#!/usr/bin/env bash
# Installs what was built, or removes what this script installed:  install_files.sh install|uninstall
# The Makefile calls it with these variables:
#   BUILD        the build folder; the programs of BUILD/bin are installed, and they print their pages
#   PREFIX       where the files go (/usr/local); an absolute path, which the systemd units contain
#   DESTDIR      put before every path, for packages; empty: none
#   MODULES      the shared libraries that the programs load; those that were not built are left out
#   ZSH_FOLDER   the folder below PREFIX/share/zsh for the completions (Debian's packages use another one)
set -euo pipefail
: "${BUILD:?}" "${PREFIX:?}"
programs=(plm-pipeline plm-packer plm-trainer plm-evaluator)
units=(plm-packer.service plm-pipeline@.service)
modules=(libplm_cuda.so libplm_mpi.so)
to=${DESTDIR-}$PREFIX
zsh=$to/share/zsh/${ZSH_FOLDER:-site-functions}
documents=$to/share/doc/plm-pipeline

case $PREFIX in
  /*) ;;
  *) echo "install: PREFIX=$PREFIX is not an absolute path, which the systemd units need; try PREFIX=$PWD/$PREFIX" >&2
     exit 2 ;;
esac

# refuse FOLDER: the first folder above it that exists must be writable
refuse() {
  local folder=$1
  while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
  [ -w "$folder" ] && return
  echo "install: you may not write to $folder; run \`sudo make $verb\` or choose another PREFIX" >&2
  exit 1
}

uninstall_files() {
  local program
  for program in "${programs[@]}"; do
    rm -f "$to/bin/$program" "$to/share/man/man1/$program.1" "$zsh/_$program" \
      "$to/share/bash-completion/completions/$program" "$to/share/fish/vendor_completions.d/$program.fish"
  done
  rm -f "$to"/share/man/man1/plm-pipeline-*.1 "$to/share/man/man5/pipeline.yaml.5" \
    "$to/share/pkgconfig/plm-pipeline.pc" "$to/lib/sysusers.d/plm-pipeline.conf" \
    "${modules[@]/#/$to/lib/plm-pipeline/}" "${units[@]/#/$to/lib/systemd/system/}"
  rm -rf "$documents"
  [ ! -d "$to/lib/plm-pipeline" ] || rmdir --ignore-fail-on-non-empty "$to/lib/plm-pipeline"
}

install_completions() {
  local program print=("$BUILD/bin/plm-pipeline" completion)
  for program in "${programs[@]}"; do
    "${print[@]}" bash "$program" >"$to/share/bash-completion/completions/$program"
    "${print[@]}" zsh "$program" >"$zsh/_$program"
    "${print[@]}" fish "$program" >"$to/share/fish/vendor_completions.d/$program.fish"
  done
}

install_files() {
  install -d "$to/bin" "$documents/doc/images" "$zsh" "$to/share/bash-completion/completions" \
    "$to/share/fish/vendor_completions.d" "$to/share/pkgconfig" "$to/lib/systemd/system"
  install -m 755 "${programs[@]/#/$BUILD/bin/}" "$to/bin"
  local module built unit
  for module in "${modules[@]}"; do # one of an earlier version would not fit these programs
    built=$(printf '%s\n' ${MODULES-} | grep "/$module\$" || true)
    if [ -e "$built" ]; then install -D -m 755 -t "$to/lib/plm-pipeline" "$built"
    else rm -f "$to/lib/plm-pipeline/$module"; fi
  done
  install_completions
  "$BUILD/bin/plm-pipeline" manual --all "$to/share/man"
  install -m 644 README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE SECURITY.md pipeline.yaml "$documents"
  install -m 644 doc/*.md doc/grafana-dashboard.json doc/alerts.yml "$documents/doc"
  install -m 644 doc/images/* "$documents/doc/images"
  for unit in "${units[@]}"; do
    sed "s|@BIN@|$PREFIX/bin|" "stages/systemd/$unit.in" >"$to/lib/systemd/system/$unit"
  done
  install -D -m 644 stages/systemd/plm-pipeline.sysusers "$to/lib/sysusers.d/plm-pipeline.conf"
  printf '%s\n' 'Name: plm-pipeline' 'Description: trains protein language models; programs without a library' \
    "Version: $("$BUILD/bin/plm-pipeline" --version | cut -d ' ' -f 2)" >"$to/share/pkgconfig/plm-pipeline.pc"
}

# What a person has to know: what is missing, and what will not be found where it is now.
report() {
  echo "installed into $to: ${programs[*]}"
  [ -e "$to/lib/plm-pipeline/libplm_cuda.so" ] || echo "  without the CUDA backend: it was not built (make cuda), or CUDA=0 leaves it out"
  [ -e "$to/lib/plm-pipeline/libplm_mpi.so" ] || echo "  without the MPI engine: it was not built (doc/ranks.md), or MPI=0 leaves it out"
  [ -z "${DESTDIR-}" ] || return 0
  case :$PATH: in
    *:"$PREFIX/bin":*) ;;
    *) echo "  $PREFIX/bin is not on PATH: export PATH=\"$PREFIX/bin:\$PATH\"" ;;
  esac
  case $PREFIX in
    /usr | /usr/local) ;;
    *) echo "  systemd does not look for units in $PREFIX/lib/systemd/system: link them (systemctl link)" ;;
  esac
}

umask 022 # what is installed can be read by everyone, whatever the umask is
cd "$(dirname "$0")/../.."
verb=${1-}
case $verb in
  install)
    [ -x "$BUILD/bin/plm-pipeline" ] || { echo "install: there is no $BUILD/bin/plm-pipeline; run \`make\` first" >&2; exit 1; }
    refuse "$to/bin"
    rm -f "$to"/share/man/man1/plm-pipeline-*.1 # of commands that an earlier version had
    rm -rf "$documents"
    install_files
    report ;;
  uninstall)
    [ ! -d "$to" ] || refuse "$to/bin"
    uninstall_files ;;
  *) echo "usage: install_files.sh install|uninstall" >&2; exit 2 ;;
esac
