#!/usr/bin/env bash
# Prometheus: `up` serves all stages at one address, and a stage without a supervisor its own.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# scrape ADDRESS [PATH]: writes the answer with its header to ./page
scrape() {
  exec 7<>"/dev/tcp/${1%:*}/${1##*:}"
  printf 'GET %s HTTP/1.1\r\nHost: x\r\n\r\n' "${2:-/metrics}" >&7
  tr -d '\r' <&7 >page
  exec 7>&-
}

# value NAME STAGE: the value in ./page of the stage's only instance
value() {
  sed -n "s/^$1{stage=\"$2\",instance=\"0\",run=\"run\"[^}]*} //p" page
}

# well_formed: each name has HELP and TYPE once, before its samples; exactly the counters end in _total
well_formed() {
  sed '1,/^$/d' page | awk '
    $2 == "HELP" { if (help[$3]++) exit 1; next }
    $2 == "TYPE" {
      if (type[$3] != "") exit 1
      type[$3] = $4
      if (($3 ~ /_total$/) != ($4 == "counter")) exit 1
      next
    }
    { name = $1; sub(/\{.*/, "", name); if (help[name] == 0 || type[name] == "") exit 1 }
  ' || { cat page >&2; fail "the page is not well formed"; }
}

served() {
  scrape "$address" && [ "$(value "$1" "$2")" != "" ] && [ "$(value "$1" "$2")" != 0 ]
}

small_corpus corpus 2>/dev/null
small_config pipeline.yaml transformer
expect 0 plm-pipeline up -d --wait --set metrics.prometheus=127.0.0.1:0 --set trainer.steps=1000000
address=$(jq -r .prometheus run/endpoints.json)

# ---- all stages at one address ----------------------------------------------------------------
wait_for 20 served plm_trainer_steps_total trainer
wait_for 20 served plm_evaluator_evaluations_total evaluator
wait_for 20 served plm_packer_tokens_total packer
says page '^HTTP/1.1 200 OK$'
well_formed
says page "^plm_packer_corpus\\{stage=\"packer\",instance=\"0\",run=\"run\",corpus=\"$PWD/corpus\"\\} 1$"
says page '^plm_trainer_loss\{stage="trainer",instance="0",run="run"\} [0-9.]+$'
says page '^plm_evaluator_loss\{stage="evaluator",instance="0",run="run",split="valid"\} [0-9.]+$'
for stage in trainer evaluator packer; do
  says page "^plm_${stage}_state\\{stage=\"$stage\",instance=\"0\",run=\"run\",state=\"ready\"\\} 1$"
  says page "^plm_${stage}_sign_age_seconds\\{stage=\"$stage\",instance=\"0\",run=\"run\",activity=\"\"\\} [0-9.e-]+$"
done
says page '^plm_evaluator_loss_by_mask_rate\{.*,split="valid",mask_rate="0.15"\} [0-9.]+$'
scrape "$address" /elsewhere
says page '^HTTP/1.1 404'

# ---- counters start at 0 with the process, positions continue ----------------------------------
steps_before() { served plm_trainer_step trainer && [ "$(value plm_trainer_step trainer)" -gt 8 ]; } # beyond a checkpoint
wait_for 30 steps_before
kill -KILL "$(plm-pipeline ps --json | jq '.[] | select(.stage == "trainer") | .pid')"
restarted() { served plm_trainer_restarts_total trainer && served plm_trainer_steps_total trainer; }
wait_for 30 restarted
[ "$(value plm_trainer_steps_total trainer)" -lt "$(value plm_trainer_step trainer)" ] ||
  fail "the counter outlived its process"

# ---- a port that is taken is named --------------------------------------------------------------
expect 1 plm-pipeline up --run other --set metrics.prometheus="$address"
says err "metrics.prometheus: $address is in use by .*plm-pipeline"
expect 2 plm-pipeline up --run other --set metrics.prometheus=nonsense
says err 'metrics.prometheus: expected HOST:PORT'
expect 0 plm-pipeline down
[ "$(jq -r .prometheus run/endpoints.json)" = null ] || fail "the address outlived the run"

# ---- without a supervisor ------------------------------------------------------------------------------
plm-trainer --run hand --set trainer.steps=1000000 --prometheus 127.0.0.1:0 2>trainer.log &
plm-evaluator --run hand --set trainer.steps=1000000 --prometheus 127.0.0.1:0 2>evaluator.log &
plm-packer --run hand --prometheus 127.0.0.1:0 2>packer.log &
for stage in trainer evaluator packer; do
  wait_for 20 grep -q 'metrics at http' $stage.log
done
by_hand() { scrape "$address" && grep -q "^$1{stage=\"$2\",instance=\"0\",run=\"hand\"} [1-9]" page; }
address=$(sed -n 's#.*http://\(.*\)/metrics#\1#p' packer.log)
wait_for 20 by_hand plm_packer_windows_total packer
well_formed
address=$(sed -n 's#.*http://\(.*\)/metrics#\1#p' evaluator.log)
wait_for 20 by_hand plm_evaluator_evaluations_total evaluator
well_formed

# an impossible port is refused, not replaced by another one
expect 2 timeout 20 plm-packer --corpus corpus --connect tcp://127.0.0.1:1 --keys hand/keys --prometheus 127.0.0.1:99999
says err 'cannot serve metrics on'
