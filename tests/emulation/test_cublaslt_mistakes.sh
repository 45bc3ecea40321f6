#!/usr/bin/env bash
# The emulated cuBLASLt, and the tests that use it, find mistakes of its caller: wrong layouts, strides and numbers of
# matrices, results that overlap operands, an algorithm of another product, no workspace. Each is planted in every
# product (tests/emulation/cublaslt/cublaslt.cc).
. "$PLM_ROOT/tests/support/shell/lib.sh"
folder=$PLM_BUILD/tests/kernels
[ -x "$folder/test_ops_products_cublaslt" ] || { echo "this build has no tests with cuBLASLt, as its header is missing"; exit 77; }

# Only the device, once: the tests otherwise compute everything on the CPU as well, which takes most of their time.
export PLM_TEST_DEVICE=cuda PLM_TEST_ONCE=1 PLM_CUDA_LIBRARY=$PLM_BUILD/tests/lib/libplm_cuda_cublaslt.so

# found MISTAKE PROGRAM TEST MESSAGE: without the mistake the test passes; with it, it fails with the message
found() {
  if PLM_EMULATED_CUBLASLT=$1 PLM_TEST_FILTER=$3 "$folder/$2" >said 2>&1; then fail "$3: the mistake \"$1\" is not found"; fi
  says said "$4"
}
wrong='LINE.*Failure!' # another result
linears=(test_ops_products_cublaslt linears_match)
muon=(test_ops_optimizer_cublaslt muon_matches) # in batches
for each in linears muon; do
  declare -n test=$each
  PLM_TEST_FILTER=${test[1]} expect 0 "$folder/${test[0]}"
done
found leading "${linears[@]}" "$wrong"
found narrow "${linears[@]}" 'cuBLASLt: a product failed: an error'
found turned "${linears[@]}" 'cuBLASLt: a product failed: an error'
found elsewhere "${linears[@]}" "$wrong"
found addend "${linears[@]}" 'a product in place with two layouts'
found operand "${muon[@]}" 'a product writes to its own operand'
found workspace "${muon[@]}" 'cuBLASLt: a product failed: not supported'
found algorithm "${muon[@]}" 'a product whose algorithm the library chooses itself'
found foreign "${muon[@]}" 'cuBLASLt: a product failed: not supported'
found alignment "${muon[@]}" 'an operand is not aligned to 256 bytes'
found count "${muon[@]}" 'cuBLASLt: a product failed: an error'
found factors "${muon[@]}" "$wrong"
found results "${muon[@]}" 'the results of a batch overlap'
