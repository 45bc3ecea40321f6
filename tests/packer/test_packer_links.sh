#!/usr/bin/env bash
# The packer and plm-pipeline link neither BLAS nor oneDNN nor CUDA, so they run on hosts without them.
set -euo pipefail
for program in plm-packer plm-pipeline; do
  linked=$(ldd "$PLM_BIN/$program")
  if grep -iE 'blas|dnnl|mkl|cuda|cublas|nccl|gomp' <<<"$linked"; then
    echo "$program links one of them" >&2
    exit 1
  fi
  grep -q libzmq <<<"$linked" || { echo "$program does not link libzmq: $linked" >&2; exit 1; }
done
