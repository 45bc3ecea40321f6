#!/usr/bin/env bash
# What a resume does with settings that leave a choice to the trainer: it keeps its own earlier choice, but chooses anew
# where the setting had a value until then, as the announced change says.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
sed -i '/^  threads:/d; /^  precision:/d' pipeline.yaml
# train STEPS KEY=VALUE…: continues until that step
train() {
  local steps=$1 sets=()
  shift
  for set in "$@"; do sets+=(--set "trainer.$set"); done
  expect 0 plm-pipeline up pipeline.yaml trainer packer --set trainer.steps="$steps" "${sets[@]}"
}
resolved() { jq ".resolved.$1" run/checkpoints/latest/trainer.json; }
processors=$(python3 -c 'import os; print(len(os.sched_getaffinity(0)))')

train 2 threads=3 precision=fp32
[ "$(resolved threads)" = 3 ] || fail "as it is set: $(resolved threads)"
train 3 threads=0 precision=fp32
says err 'trainer\.threads: 3 -> 0$'
[ "$(resolved threads)" = "$processors" ] || fail "the threads were not chosen anew: $(resolved threads)"
rate=$(resolved product_flops_per_second)
# from then on they stay, also where others would be chosen
expect 0 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" plm-pipeline up pipeline.yaml trainer packer \
  --set trainer.steps=4 --set trainer.threads=0 --set trainer.precision=fp32
[ "$(resolved threads)" = "$processors" ] || fail "an earlier choice was not kept: $(resolved threads)"
[ "$(resolved product_flops_per_second)" = "$rate" ] || fail "the rate of products was measured again"

# how bf16 operands are multiplied: at the level `portable` by fp32 products, and so after it, where others may be faster
mv run first
PLM_CPU_ISA=portable train 2 precision=bf16
[ "$(resolved bf16_products)" = '"fp32"' ] || fail "at the level portable: $(resolved bf16_products)"
train 3 precision=bf16
[ "$(resolved bf16_products)" = '"fp32"' ] || fail "the way of bf16 products was not kept: $(resolved bf16_products)"
[ "$(grep -c 'training on cpu (.*), bf16 by fp32 products$' run/logs/trainer.0.log)" = 2 ] ||
  fail "the log: $(cat run/logs/trainer.0.log)"
if grep -q 'bf16 products was' run/logs/trainer.0.log; then fail "the resume chose another way of bf16 products"; fi
# what bf16 gains; the resume only says it if a new run would multiply in the same way
gains='bf16 saves memory but no time here: '
case $(plm-trainer -c pipeline.yaml --dry-run --json --set trainer.precision=bf16 | jq -r .bf16_products) in
fp32) expected=(2 0) ;;
native) expected=(1 1) ;;
*) fail "the estimate does not say how bf16 is computed" ;;
esac
[ "$(grep -c "$gains" run/logs/trainer.0.log)" = "${expected[0]}" ] ||
  fail "the log does not say what bf16 gains: $(cat run/logs/trainer.0.log)"
kept='the run keeps its way of bf16 products, fp32 products, although a new run in bf16 would take bf16 instructions here$'
[ "$(grep -c "$kept" run/logs/trainer.0.log)" = "${expected[1]}" ] ||
  fail "the log does not say that the way is kept: $(cat run/logs/trainer.0.log)"
if grep -q 'bf16 is faster than fp32 here' run/logs/trainer.0.log; then fail "the log contradicts the kept choice"; fi
