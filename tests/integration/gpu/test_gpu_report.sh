#!/usr/bin/env bash
# The report of `make gpu-check` when half of the check fails: tests that were not built, a program that is broken, one
# that never ends, and the end of the check itself by a signal. Each is in the report, and nothing is left behind.
. "$PLM_ROOT/tests/support/shell/lib.sh"
export PYTHONDONTWRITEBYTECODE=1
[ -e "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" ] || { echo "the emulated backend is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

mkdir -p broken/bin broken/tests/gpu broken/tests/lib
ln -s "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" broken/tests/lib/
for name in plm-packer plm-evaluator; do ln -s "$PLM_BIN/$name" broken/bin/; done
cp "$PLM_BIN/plm-pipeline" broken/bin/ # it starts the stages that lie beside it, and finds itself behind a link
printf '#!/bin/sh\necho "plm-trainer: broken on purpose" >&2\nexit 3\n' >broken/bin/plm-trainer
printf '#!/bin/sh\n[ "$3" != masks ] || exit 1\necho $$ >%s/reached\nexec sleep 1000\n' "$PLM_TMP" >broken/tests/gpu/gpu_attention
chmod +x broken/bin/plm-trainer broken/tests/gpu/gpu_attention

# begin NAME PART...: these parts of the check in the background, until the program that never ends runs
begin() {
  local name=$1 part parts=()
  shift
  for part; do parts+=(--only "$part"); done
  rm -f reached
  TMPDIR=$PLM_TMP PLM_VENV='' python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --build broken --out "$PLM_TMP/$name" \
    "${parts[@]}" --minutes 60 >"$name.out" 2>"$name.err" &
  check=$!
  wait_for 60 test -s reached
}

begin ended operators pipeline ceilings attention
report=ended/rehearsal.md
says $report '^\| Needs \| done .* 1 passed[ ;]' # what fails after it takes nothing from it
says $report '^\| Build \| done .*\*\*1 FAILED' # what was not built is named, before the parts that need it
says $report '^- \*\*FAILED\*\*: .make tests. has built everything .*tests/gpu/gpu_rates'
says $report '^\| Kernels of this card \| done .*FAILED'
says $report '^\| Ceilings \| done .*FAILED'
says $report '^\| Build of the rest \| done .*\*\*1 FAILED'
says $report '^- \*\*FAILED\*\*: .make tests. has built everything .*tests/kernels/test_ops_rows'
says $report '^\| Operators on the device \| done .*FAILED'
says $report '^- \*\*FAILED\*\*: .make tests. has built everything .*broken/tests/lib/stop_at.so'
says $report '^\| The pipeline, killed and resumed \| (done|failed) .*'
says $report 'broken on purpose'
# A script whose library is missing says so before any training: this trainer can do nothing.
says $report '^- \*\*FAILED\*\*: .chaos/test_kill_trainer_unet.sh. on the device .*stop_at.so is to be preloaded, and is not built'
kill -TERM $check
status=0
wait $check || status=$?
[ $status -eq 143 ] || fail "the check ended with $status"
says $report '^\| Attention \| '
says ended/rehearsal.log '^==== '
[ -z "$(ls -d gpu-check-* 2>/dev/null)" ] || fail "a folder is left behind"
! kill -0 "$(cat reached)" 2>/dev/null || fail "a program is left behind"

expect 1 env TMPDIR="$PLM_TMP" PLM_VENV= python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --build broken \
  --out "$PLM_TMP/failed" --only ceilings --minutes 60
says out '^\| Ceilings \| done .*FAILED'
[ -z "$(ls -d gpu-check-* 2>/dev/null)" ] || fail "a folder is left behind"

# SIGKILL cannot be caught, so the report is rewritten after each part.
begin killed operators attention
kill -KILL $check
wait $check 2>/dev/null || true
kill -KILL "$(cat reached)"
says killed/rehearsal.md '^\| Operators on the device \| done .*FAILED'
says killed/rehearsal.md '^\| Build \| done .*FAILED'
