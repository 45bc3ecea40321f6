#!/usr/bin/env bash
# A small run with a checkpoint about every second, for an hour (make soak; doc/faults.md#soak). Samples
# the resident memory, the descriptors and the threads of each process, and fails if one of them still
# grows in the second half.
#
#   tests/faults/soak.sh [MINUTES]      PLM_BIN: the folder of the programs
set -euo pipefail
minutes=${1:-60}
PLM_ROOT=$(cd "$(dirname "$0")/../.." && pwd)
PLM_BIN=$(cd "${PLM_BIN:-$PLM_ROOT/build/bin}" && pwd)
PLM_TMP=$(mktemp -d "${TMPDIR:-/tmp}/plm-soak-XXXXXX")
export PLM_ROOT PLM_BIN PLM_TMP
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 1000
small_config pipeline.yaml patch_unet
plm-pipeline up -d pipeline.yaml --set trainer.steps=100000000 --set trainer.checkpoint.every=20 \
  --set trainer.checkpoint.keep_last=3 --set evaluator.max_tokens=1000 2>up.err || { cat up.err >&2; exit 1; }
stop() {
  plm-pipeline down >/dev/null 2>&1 || true
  end_children
}
trap stop EXIT

# Prints the processes of the run: NAME PID
running() {
  echo "supervisor $(jq .pid run/supervisor.lock)"
  plm-pipeline ps --json 2>/dev/null | jq -r '.[] | "\(.stage).\(.instance) \(.pid)"'
}
everything_runs() { [ "$(plm-pipeline ps --json 2>/dev/null | jq '[.[] | select(.ready)] | length')" -ge 3 ]; }
wait_for 60 everything_runs
running >processes
begin=$SECONDS end=$((SECONDS + minutes * 60))
echo "minute process resident_kib descriptors threads" >samples
while [ "$SECONDS" -lt "$end" ]; do
  sleep 5
  while read -r name pid; do
    [ -d "/proc/$pid" ] || fail "$name ended: $(tail -n 5 "run/logs/$name.log")"
    awk -v name="$name" -v minute="$(awk "BEGIN { print ($SECONDS - $begin) / 60 }")" -v fds="$(find "/proc/$pid/fd" -mindepth 1 | wc -l)" '
      /^VmRSS/ { resident = $2 } /^Threads/ { threads = $2 }
      END { print minute, name, resident, fds, threads }' "/proc/$pid/status" >>samples
  done <processes
  [ ! -t 1 ] || printf '\r%3d of %d minutes, %s checkpoints' $(((SECONDS - begin) / 60)) "$minutes" \
    "$(jq -s length run/checkpoints.jsonl 2>/dev/null || echo 0)"
done
running | diff processes - || fail "a process was started again"
plm-pipeline down >down.out 2>&1 || fail "down: $(cat down.out)"
trap end_children EXIT

# The most in the second quarter of the time, and in the last one.
echo
echo "$(tail -n 1 run/trainer.jsonl | jq .step) steps, $(jq -s length run/evaluator.jsonl) evaluations in $minutes minutes"
awk -v minutes="$minutes" '
  NR == 1 { next }
  { names[$2] = 1 }
  $1 >= minutes / 4 && $1 < minutes / 2 { for (i = 3; i <= 5; i++) if ($i > early[$2, i]) early[$2, i] = $i }
  $1 >= 3 * minutes / 4 { for (i = 3; i <= 5; i++) if ($i > late[$2, i]) late[$2, i] = $i }
  END {
    printf "%-14s %26s %18s %14s\n", "process", "resident KiB, early, late", "descriptors", "threads"
    for (name in names) {
      grows = late[name, 3] > 1.01 * early[name, 3] + 512 || late[name, 4] > early[name, 4] + 4 || late[name, 5] > early[name, 5]
      printf "%-14s %12d %13d %9d %8d %6d %7d%s\n", name, early[name, 3], late[name, 3], early[name, 4],
        late[name, 4], early[name, 5], late[name, 5], grows ? "   GROWS" : ""
      bad += grows
    }
    exit bad > 0
  }' samples || fail "it grows; the samples are in $PLM_TMP/samples"
rm -rf "$PLM_TMP"
