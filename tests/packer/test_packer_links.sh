#!/usr/bin/env bash
# The packer and plm-pipeline run on nodes without BLAS, oneDNN or CUDA: they link none of them.
set -euo pipefail
for program in plm-packer plm-pipeline; do
  linked=$(ldd "$PLM_BIN/$program")
  if grep -iE 'blas|dnnl|mkl|cuda|cublas|nccl|gomp' <<<"$linked"; then
    echo "$program links what it must not" >&2
    exit 1
  fi
  grep -q libzmq <<<"$linked" || { echo "$program: not even libzmq: $linked" >&2; exit 1; }
done
