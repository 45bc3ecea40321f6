#!/usr/bin/env bash
# `make gpu-check` without a GPU: every part at a tiny size on the emulated backend, and its report, which
# says that it is a rehearsal. PyTorch's parts run if the environment has PyTorch. The scripts of the part
# `pipeline` are in test_gpu_scripts.sh, and parts that fail in test_gpu_report.sh.
. "$PLM_ROOT/tests/support/shell/lib.sh"
export PYTHONDONTWRITEBYTECODE=1
[ -e "$PLM_BUILD/tests/lib/libplm_cuda_emulated.so" ] || { echo "the emulated backend is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

parts=()
for part in ceilings unet kernels operators sanitizer parity sanitizer90 attention patch ranks; do
  parts+=(--only "$part")
done
TMPDIR=$PLM_TMP python3 "$PLM_ROOT/tests/gpu/gpu_check.py" --rehearse --build "$PLM_BUILD" --out "$PLM_TMP/first" \
  --minutes $((${limit_s:-900} / 60 - 1)) "${parts[@]}" >page 2>err || { cat err page; fail "the rehearsal failed"; }
cmp -s page first/rehearsal.md || fail "the page is not what was printed"
says page 'REHEARSAL. No GPU ran any of this'
# in this order; without compute-sanitizer, its parts say so
order=(Machine Needs Build 'Kernels of this card' Ceilings 'Training: unet, 133 M' 'Time by operator' 'Build of the rest'
  'Operators on the device' 'Training on the device and on the CPU' Attention 'Training: patch_unet' 'Several ranks')
sed -n 's/^| \([^|]*\) | done |.*/\1/p' page | grep -v '^compute-sanitizer' | cmp - <(printf '%s\n' "${order[@]}") ||
  fail "not every part is done, in its order"
says page '^\| compute-sanitizer, kernels for sm_90a \| (done|left out) \|'
[ "$(grep -c ': the same bits twice$' page)" -ge 2 ] || fail "no second run was compared"
# Each finding was printed when it was there, not only at the end.
says err '^ *[0-9]+ s  Ceilings: \| copy on the device, read and written \| [0-9.]+ \|'
says err '^ *[0-9]+ s  Training: unet, 133 M: tokens/s [0-9]'
says page '^\| tokens/s \| [0-9]'
says page '^\| doc-1024-128 \| as chosen \| [0-9]'
says page '^\| doc-1024-128 \| sm90, backward onepass \| [0-9]'
says page '^\| linear_forward [0-9x ]+\| [0-9]+ \| [0-9.]+ '
says page '^\| operator \| calls \| ms a step \| model \|'
says page '(no model: .* is missing|in the model, all operators of a step take [0-9])'
says page '^\| memory of the card, GB \| [0-9.]+ \| .*\| [0-9.]+ planned \| yes'
says page 'NCCL with one rank'
if has_mpi; then
  says page 'staged through the host: the bits of one rank'
  says page '^\| tokens a GPU \| tokens/s, one \| tokens/s, 2 \| efficiency \|'
else
  says page 'staged through the host.*(mpirun is not installed|the MPI engine is not built)'
fi
for file in svg json; do [ -s "first/rehearsal.$file" ] || fail "no rehearsal.$file"; done
if [ -x "${PLM_VENV:-}/bin/python" ]; then
  [ "$(grep -cE '^\| PyTorch on the same card, tokens/s \| [0-9]' page)" -eq 2 ] || fail "not both models in PyTorch"
  [ "$(grep -cE '^\| ours over PyTorch \| [0-9.]+x \| micro-batches of 64 and 64 tokens' page)" -eq 2 ] ||
    fail "the ratios do not name the micro-batches"
  says page '^\| doc-1024-128 \| FlexAttention compiled \| [0-9]'
fi

[ -z "$(ls -d gpu-check-* 2>/dev/null)" ] || fail "a folder is left behind"
[ -z "$(find "$PLM_ROOT/tests/gpu" -name __pycache__)" ] || fail "left behind: __pycache__"
