#!/usr/bin/env bash
# `make deps`, which `make demo` runs first, on a machine without compilers and their tools: reading the Makefile
# prints no error.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# All programs but those that `make deps` installs or that the machine may lack.
mkdir programs
declare -A links=()
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
  for program in "$folder"/*; do
    name=${program##*/}
    case $name in
      *gcc* | *g++* | *clang* | cc | c++ | c[0-9]* | ld* | as | ar | nvcc | *mpi* | *pkg-config* | pkgconf | git* | ccache | python3*) ;;
      *) [ -n "${links[$name]:-}" ] || links[$name]=$program ;;
    esac
  done
done
ln -s "${links[@]}" programs/
[ -e programs/make ] || { echo "no make"; exit 77; }
PATH=$PWD/programs MAKEFLAGS='' make -n -C "$PLM_ROOT" CC=gcc BUILD="$PWD/build" deps >out 2>err || fail "$(cat err)"
[ ! -s err ] || fail "make deps prints $(cat err)"
says out 'tests/support/make/deps[.]sh$'
