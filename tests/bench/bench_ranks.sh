#!/usr/bin/env bash
# Compares the exchange between ranks with Open MPI's own reduce-scatter, in the same run, and prints the
# machine and a table. `make bench-ranks` calls it.
#   bench_ranks.sh [ROUNDS [MEGABYTES...]]
set -euo pipefail
build=${PLM_BUILD:-build}
rounds=${1:-10}
sizes=("${@:2}")
[ "${#sizes[@]}" -gt 0 ] || sizes=(1 4 16 64 256)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PLM_MPI_LIBRARY=$build/lib/libplm_mpi.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mpicc -O3 -o "$work/peer" "$(dirname "$0")/peers/reduce_scatter.c"

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(mpirun --version | head -n 1)"
echo
echo "| ranks | gradient, MB | exchange and ordered sum, ms | MPI_Reduce_scatter_block, ms | ratio |"
echo "|---|---|---|---|---|"
for ranks in 2 4; do
  for size in "${sizes[@]}"; do
    ours=() theirs=()
    for _ in 1 2 3; do # alternately, so that a slow moment of the machine meets both
      ours+=("$(mpirun --oversubscribe --bind-to none -np $ranks "$build/tests/bench/exchange/tool_exchange" "$rounds" "$size" | cut -d' ' -f2)")
      theirs+=("$(mpirun --oversubscribe --bind-to none -np $ranks "$work/peer" "$rounds" "$size" | cut -d' ' -f2)")
    done
    best() { printf '%s\n' "$@" | sort -g | head -n 1; }
    awk -v r=$ranks -v s="$size" -v a="$(best "${ours[@]}")" -v b="$(best "${theirs[@]}")" \
      'BEGIN { printf "| %d | %d | %.2f | %.2f | %.2fx |\n", r, s, a, b, b / a }'
  done
done
