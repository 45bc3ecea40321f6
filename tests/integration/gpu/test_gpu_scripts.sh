#!/usr/bin/env bash
# The scripts that `make gpu-check` runs on a card, on the emulated backend and as it starts them: with its environment,
# only the programs that it builds, and a smaller model. What is said without the library that one of them preloads is in
# test_gpu_report.sh.
. "$PLM_ROOT/tests/support/shell/lib.sh"
export PYTHONDONTWRITEBYTECODE=1
[ -e "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" ] || { echo "the emulated backend is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

# The programs of a part, as gpu-check builds them, and the emulation in place of libplm_cuda.so.
mkdir -p few/tests/lib few/tests/gpu
ln -s "$PLM_BIN" few/bin
ln -s "$PLM_BUILD/tests/gpu/gpu_probe" few/tests/gpu/
ln -s "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" "$PLM_BUILD/tests/lib/stop_at.so" few/tests/lib/
check() {
  TMPDIR=$PLM_TMP PLM_VENV='' python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --build few --out "$PLM_TMP/$1" \
    --only pipeline --minutes $((${limit_s:-900} / 60 - 1)) >page 2>err
}
check whole || { cat err page; fail "the rehearsal failed"; }
says page '^- passed: killed with SIGKILL 1 times and resumed: the same bits as undisturbed$'
for script in chaos/test_kill_trainer_unet integration/run/test_pipeline integration/run/test_resume_from; do
  says page "^- passed: .$script.sh. on the device"
done
[ -z "$(ls -d gpu-check-* 2>/dev/null)" ] || fail "a folder is left behind"
