#!/usr/bin/env bash
# Measures ranks on this machine and prints it and three tables: the exchange of gradients beside Open MPI's own
# reduce-scatter, what a step exchanges beside the model of its cost, and the speed of training with one and two
# ranks. `make bench-ranks` calls it; with QUICK=1 it takes seconds, and the figures mean nothing.
#   bench_ranks.sh [ROUNDS [MEGABYTES...]]
set -euo pipefail
here=$(dirname "$0")
build=$(realpath "${PLM_BUILD:-build}")
rounds=${1:-10} times=3 steps=30
sizes=("${@:2}")
[ "${#sizes[@]}" -gt 0 ] || sizes=(1 4 16 64 256)
[ -z "${QUICK:-}" ] || { rounds=1 times=1 steps=2 sizes=(1); }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PLM_MPI_LIBRARY=$build/lib/plm-pipeline/libplm_mpi.so
root=$(realpath "$here/../..")
work=$(mktemp -d)
packer=''
trap '[ -z "$packer" ] || kill "$packer"; rm -rf "$work"' EXIT
mpicc -O3 -o "$work/peer" "$here/peers/reduce_scatter.c"

launch() { mpirun --oversubscribe --bind-to none -np "$@"; }
best() { printf '%s\n' "$@" | sort -g | head -n 1; }
exchange() { launch "$1" "$build/tests/bench/exchange/tool_exchange" "$rounds" "$2"; }

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(mpirun --version | head -n 1)"
echo
echo "| ranks | gradient, MB | exchange and ordered sum, ms | MPI_Reduce_scatter_block, ms | ratio |"
echo "|---|---|---|---|---|"
for ranks in 2 4; do
  for size in "${sizes[@]}"; do
    ours=() theirs=()
    for ((i = 0; i < times; i++)); do # alternately, so that a slow moment of the machine meets both
      ours+=("$(exchange $ranks "$size" | cut -d' ' -f2)")
      theirs+=("$(launch $ranks "$work/peer" "$rounds" "$size" | cut -d' ' -f2)")
    done
    awk -v r=$ranks -v s="$size" -v a="$(best "${ours[@]}")" -v b="$(best "${theirs[@]}")" \
      'BEGIN { printf "| %d | %d | %.2f | %.2f | %.2fx |\n", r, s, a, b, b / a }'
  done
done

# ---- the model of the cost: bytes that a rank sends, divided by the speed of one transfer ----
trainer=("$build/bin/plm-trainer" -c "$root/pipeline.yaml" --set corpus="$work/corpus" --set trainer.device=cpu
  --set trainer.threads=1 --set "trainer.steps=$steps" --set trainer.micro_batch_tokens=1024
  --set trainer.checkpoint.every=1000000)
echo
echo "What the model of pipeline.yaml exchanges in a step. The model of the cost divides the bytes that a rank sends"
echo "(--dry-run) by the speed of one transfer from rank 0 to rank 1 while the other ranks wait."
echo
echo "| ranks | a rank sends, MB | one transfer, GB/s | cost on paper, ms | exchange and gather, ms | ratio |"
echo "|---|---|---|---|---|---|"
for ranks in 2 4; do
  sent=$("${trainer[@]}" --set trainer.ranks=$ranks --dry-run --json | jq '.sent_in_group + .sent_on_rail')
  # an exchange and a gathering of so many bytes send as much
  gradient=$(awk -v b="$sent" -v r=$ranks 'BEGIN { printf "%.0f", b * r / (2 * (r - 1)) }')
  moved=() sending=()
  for ((i = 0; i < times; i++)); do
    read -r _ _ move gather transfer < <(exchange $ranks "$(awk -v b="$gradient" 'BEGIN { print b / 1048576 }')")
    moved+=("$(awk -v a="$move" -v b="$gather" 'BEGIN { print a + b }')") sending+=("$transfer")
  done
  awk -v r=$ranks -v bytes="$gradient" -v sent="$sent" -v m="$(best "${moved[@]}")" -v t="$(best "${sending[@]}")" 'BEGIN {
    paper = t * sent / bytes
    printf "| %d | %.2f | %.2f | %.2f | %.2f | %.2fx |\n", r, 1e-6 * sent, 1e-6 * bytes / t, paper, m, m / paper }'
done

# ---- training ----
"$build/bin/plm-pipeline" ingest -q "$root/tests/data/families.fasta.gz" --corpus "$work/corpus" \
  --split train=0.85,valid=0.13,test=0.02 2>"$work/ingest.log"
echo
echo "Training the model of pipeline.yaml with one thread a rank: the median speed of $steps steps, best of $times runs."
echo
echo "| ranks | tokens/s | ratio |"
echo "|---|---|---|"

# train RANKS: prints the median speed of a new run
train() {
  local ranks=$1 run
  local -a start=(launch "$ranks")
  [ "$ranks" -gt 1 ] || start=()
  run=$(mktemp -d "$work/run-XXXX")
  "$build/bin/plm-packer" -c "$root/pipeline.yaml" --corpus "$work/corpus" --run "$run" >"$work/packer.log" 2>&1 &
  packer=$!
  "${start[@]}" "${trainer[@]}" --run "$run" --set "trainer.ranks=$ranks" >"$work/trainer.log" 2>&1 ||
    { cat "$work/trainer.log" "$work/packer.log" >&2; exit 1; }
  kill "$packer"
  wait "$packer" || true
  packer=''
  speed=$(jq -s 'map(.tokens_per_second) | sort | .[length / 2 | floor]' "$run/trainer.jsonl")
}
one=0 two=0
larger() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > b ? a : b) }'; }
for ((i = 0; i < times; i++)); do # alternately, as above
  train 1
  one=$(larger "$one" "$speed")
  train 2
  two=$(larger "$two" "$speed")
done
awk -v a="$one" -v b="$two" 'BEGIN { printf "| 1 | %.0f | 1.00x |\n| 2 | %.0f | %.2fx |\n", a, b, b / a }'
