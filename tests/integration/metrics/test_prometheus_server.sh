#!/usr/bin/env bash
# A real Prometheus: promtool finds nothing to complain about in the page of `up`, a server scrapes it, and every query
# of the Grafana dashboard (doc/grafana-dashboard.json) has a result there.
. "$PLM_ROOT/tests/support/shell/lib.sh"
for program in prometheus promtool; do
  command -v $program >/dev/null || {
    echo "$program is not installed (Debian: prometheus)"
    exit 77
  }
done

small_corpus corpus 2>/dev/null
small_config pipeline.yaml transformer
sed -i 's/^corpus: corpus$/corpus: [{path: corpus}]/' pipeline.yaml # the metrics by source need a list
expect 0 plm-pipeline up -d --wait --set metrics.prometheus=127.0.0.1:0 --set trainer.steps=1000000 \
  --set metrics.norms=1 --set 'evaluator.mask_rates=[0.15, 0.5]' --set evaluator.max_tokens=1000
address=$(jq -r .prometheus run/endpoints.json)

cat >prometheus.yml <<END
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: plm-pipeline
    honor_labels: true
    static_configs: [{targets: ["$address"]}]
END
expect 0 promtool check config prometheus.yml
prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:0 2>prometheus.log &
listening() { server=http://$(sed -n 's/.*msg="Listening on" address=//p' prometheus.log) && [ "$server" != http:// ]; }
wait_for 20 listening

# has QUERY: the server's answer to it has samples (an empty answer is an empty line). For wait_for: on a busy machine
# a scrape may fail, and until the next one there is no answer.
has() { promtool query instant "$server" "$1" >answer 2>query.log && grep -q ' => ' answer; }
wait_for 20 has 'up == 1'
wait_for 20 has 'plm_evaluator_loss{run="run",split="valid"} > 0'

# ---- the page ----
page=$(mktemp -p .)
exec 7<>"/dev/tcp/${address%:*}/${address##*:}"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&7
tr -d '\r' <&7 | sed '1,/^$/d' >"$page"
exec 7>&-
promtool check metrics <"$page" >complaints 2>&1 || fail "promtool: $(cat complaints)"
[ ! -s complaints ] || fail "promtool: $(cat complaints)"

# ---- what the server has is what the run wrote ----
wait_for 20 has 'plm_trainer_gradient_norms{layer="layers.0"} > 0'
wait_for 20 has 'plm_trainer_step{run="run",stage="trainer",instance="0"} > 2'
wait_for 20 has 'sum(plm_trainer_ready) == 1'

# ---- the dashboard ----
dashboard=$PLM_ROOT/doc/grafana-dashboard.json
jq -e '[.panels[] | select(.type != "row") | .targets[] | .expr] | length > 30 and all(type == "string")' "$dashboard" >/dev/null ||
  fail "the dashboard has no queries"
jq -e '[.panels[].id] | length == (unique | length)' "$dashboard" >/dev/null || fail "panels share an id"
count=0
while IFS= read -r query; do
  wait_for 20 has "$query"
  count=$((count + 1))
done < <(jq -r '.panels[] | select(.type != "row") | .targets[].expr | gsub("\\$run"; ".*") | gsub("\\$__rate_interval"; "1m")' "$dashboard")
[ "$count" -gt 30 ] || fail "only $count queries were tried"
# its variable
label=$(jq -r '.templating.list[] | select(.name == "run") | .query | capture("label_values\\((?<m>[^,]*), (?<l>.*)\\)") | "\(.m) \(.l)"' "$dashboard")
wait_for 20 has "count by (${label#* }) (${label% *})"
says answer '\{run="run"\}'
expect 0 plm-pipeline down
