#!/usr/bin/env bash
# doc/alerts.yml: promtool accepts the rules, and each alert fires for the series it is meant for, and not beside them.
. "$PLM_ROOT/tests/support/shell/lib.sh"
command -v promtool >/dev/null || {
  echo "promtool is not installed (Debian: prometheus)"
  exit 77
}
rules=$PLM_ROOT/doc/alerts.yml
expect 0 promtool check rules "$rules"
labels='{run="r",stage="trainer",instance="0"}'
evaluator='{run="r",stage="evaluator",instance="0",split="valid"}'

# case_of ALERT MINUTES FIRES SERIES VALUES [SERIES VALUES]…: how many alerts of this name fire after so many minutes
case_of() {
  local alert=$1 minutes=$2 fires=$3
  shift 3
  {
    printf 'rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n' "$rules"
    while [ $# -gt 0 ]; do
      printf "      - {series: '%s', values: '%s'}\n" "$1" "$2"
      shift 2
    done
    printf '    promql_expr_test:\n      - expr: count(ALERTS{alertname="%s",alertstate="firing"}) or vector(0)\n' "$alert"
    printf '        eval_time: %sm\n        exp_samples: [{labels: "{}", value: %s}]\n' "$minutes" "$fires"
  } >unit.yml
  expect 0 promtool test rules unit.yml
}
case_of PlmGradientIsZero 2 1 "plm_trainer_grad_norm$labels" '0x10'
case_of PlmGradientIsZero 2 0 "plm_trainer_grad_norm$labels" '1e-9x10'
case_of PlmGradientIsZero 9 1 "plm_trainer_grad_norm$labels" '0 0 1e-9 0 0 1e-9 0 0 1e-9 0 0 1e-9'
case_of PlmGradientIsZero 9 0 "plm_trainer_grad_norm$labels" '1 1 0 1 1 0 1 1 0 1 1 0'
case_of PlmLossAboveComposition 8 1 "plm_trainer_loss$labels" '3.2x10' "plm_evaluator_baseline_entropy$evaluator" '2.9x10' \
  "plm_trainer_step$labels" '1001+1x10'
case_of PlmLossAboveComposition 8 0 "plm_trainer_loss$labels" '3.05x10' "plm_evaluator_baseline_entropy$evaluator" '2.9x10' \
  "plm_trainer_step$labels" '1001+1x10'
case_of PlmLossAboveComposition 8 0 "plm_trainer_loss$labels" '3.2x10' "plm_evaluator_baseline_entropy$evaluator" '2.9x10' \
  "plm_trainer_step$labels" '900+1x10'
case_of PlmUpdatesSkipped 10 1 "plm_trainer_skipped_updates$labels" '0+2x20'
case_of PlmUpdatesSkipped 10 0 "plm_trainer_skipped_updates$labels" '0+0.5x20'
case_of PlmTrainerStalled 25 1 "plm_trainer_step$labels" '7x30'
case_of PlmTrainerStalled 25 0 "plm_trainer_step$labels" '7+1x30'
silent='plm_packer_sign_age_seconds{run="r",stage="packer",instance="0",activity="heard by no consumer"}'
case_of PlmStageSilent 5 1 "$silent" '601+60x10'
case_of PlmStageSilent 5 0 "$silent" '300x10'
case_of PlmStageSilent 5 0 "${silent/heard by no consumer/}" '601+60x10'
fatal='plm_evaluator_fatal{run="r",stage="evaluator",instance="0",continue="plm-pipeline restart evaluator.0"}'
case_of PlmStageFatal 2 1 "$fatal" '1x10'
case_of PlmStageFatal 2 0 "$fatal" '0x10'
case_of PlmStageNotReady 12 1 "plm_evaluator_ready$evaluator" '0x20'
case_of PlmStageNotReady 12 0 "plm_evaluator_ready$evaluator" '1x20'
case_of PlmStageRestarts 20 1 "plm_trainer_restarts_total$labels" '0+1x30'
case_of PlmStageRestarts 20 0 "plm_trainer_restarts_total$labels" '1x30'

# every metric that the rules use is one that `up` serves
served() { # served STAGE FIELD
  local letter=T
  [ "$1" = trainer ] || letter=E
  grep -q "{\"$2\", $letter, [XM]" "$PLM_ROOT/common/metrics/metric_table.c"
}
served trainer loss || fail "the check of names finds nothing"
served trainer baseline_entropy && fail "the check of names finds everything"
for metric in $(sed 's/"plm_(trainer|evaluator)_[a-z_]*"//' "$rules" | grep -oE 'plm_[a-z_]+[a-z]' | sort -u); do
  name=${metric#plm_}
  served "${name%%_*}" "${name#*_}" || fail "$metric is not served"
done
