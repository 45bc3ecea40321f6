#!/usr/bin/env bash
# The packer and plm-pipeline run on nodes without BLAS, oneDNN or CUDA: they link none of them.
set -euo pipefail
for program in plm-packer plm-pipeline; do
  if ldd "$PLM_BIN/$program" | grep -iE 'blas|dnnl|mkl|cuda|cublas|nccl|gomp'; then
    echo "$program links what it must not" >&2
    exit 1
  fi
done
ldd "$PLM_BIN/plm-packer" | grep -q libzmq
