#!/usr/bin/env bash
# `sweep`: a run for each combination, with the settings that its name says; complete runs are skipped, an interrupted
# one goes on, a failed one does not end the others, and one table and one page show all of them.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
sweep() { plm-pipeline sweep pipeline.yaml --output out.sweep "$@"; }
two=(--set 'trainer.optimizer.lr_hidden=0.01,0.002' --set 'evaluator.mask_rates=[0.1,0.2],[0.3]')
runs=('lr_hidden=0.01,mask_rates=_0.1_0.2_' 'lr_hidden=0.01,mask_rates=_0.3_' 'lr_hidden=0.002,mask_rates=_0.1_0.2_'
  'lr_hidden=0.002,mask_rates=_0.3_')

# Bad input is refused before anything starts, also in the last combination.
expect 2 sweep --set seed=1,
says err '--set seed: a value is empty'
expect 2 sweep --set seed=1 --run elsewhere
says err 'name the folder of all of them with --output DIR'
expect 2 sweep --set seed=1,2 --set model.hidden_size=64,63
says err 'model.hidden_size: 63 divided by 2 heads'
says err 'run 2 of the sweep \(seed=1,hidden_size=63\) has no valid configuration'
expect 2 sweep --set seeed=1,2
says err 'unknown key "seeed"; did you mean "seed"'
expect 2 sweep --jobs 0
expect 2 sweep --jobs 65
expect 2 plm-pipeline sweep pipeline.yaml other.yaml
[ ! -e out.sweep ] || fail "a refused sweep has made its folder"

# The list of the runs.
expect 0 sweep "${two[@]}" --dry-run
for run in "${runs[@]}"; do grep -qxF "./out.sweep/$run" out || fail "not listed: $run: $(cat out)"; done
[ "$(grep -c '^\./' out)" -eq 4 ] || fail "not four runs: $(cat out)"
grep -qxF '  --set evaluator.mask_rates=[0.1,0.2]' out || fail "the settings: $(cat out)"
[ ! -e out.sweep ] || fail "a dry run has made the folder"
expect 0 plm-pipeline sweep pipeline.yaml --dry-run
grep -qxF "$PWD/run-sweep/run" out || fail "the usual folder: $(cat out)"

# Two at once; then the same command finds nothing to do.
expect 0 sweep "${two[@]}" --jobs 2
for i in 0 1 2 3; do
  folder=out.sweep/${runs[i]}
  [ -e "$folder/DONE" ] || fail "$folder is not complete"
  [ "$(plm-pipeline config "$folder/pipeline.yaml" --json | jq -c '[."trainer.optimizer.lr_hidden".value, ."evaluator.mask_rates".value]')" = \
    "$(sed -n "$((i + 1))p" <<<$'[0.01,[0.1,0.2]]\n[0.01,[0.3]]\n[0.002,[0.1,0.2]]\n[0.002,[0.3]]')" ] ||
    fail "the settings of $folder"
  loss=$(jq -r 'select(.step == 12) | .loss' "$folder/evaluator.jsonl")
  best=$(jq -s 'map(.loss) | min' "$folder/evaluator.jsonl")
  sed -n "$((i + 2))p" out | matches -E "complete +$(printf '%.4f' "$loss") +$(printf '%.4f' "$best") +[1-9][0-9]*$" ||
    fail "row $i of the table: $(cat out)"
done
says out '^trainer.optimizer.lr_hidden  evaluator.mask_rates  state +loss +best +tokens/s$'
for run in "${runs[@]}"; do grep -qF "$run" out.sweep/report.html || fail "the page has no $run"; done
find out.sweep -name '*.jsonl' -printf '%P %s %T@\n' | sort >before
expect 0 sweep "${two[@]}" --json
find out.sweep -name '*.jsonl' -printf '%P %s %T@\n' | sort >after
cmp before after || fail "a complete run was started again"
jq -se 'length == 4 and all(.[]; .state == "complete" and .best_loss <= .loss and .tokens_per_second > 0)
        and .[1].settings == {"trainer.optimizer.lr_hidden": "0.01", "evaluator.mask_rates": "[0.3]"}' out >/dev/null ||
  { cat out >&2; fail "--json"; }
[ "$(grep -c 'is complete$' err)" -eq 4 ] || { cat err >&2; fail "what was skipped"; }

# More steps: the same runs go on.
expect 0 sweep "${two[@]}" --set trainer.steps=13 --json
for run in "${runs[@]}"; do [ "$(jq -s 'map(.step) | max' "out.sweep/$run/trainer.jsonl")" -eq 13 ] || fail "$run ended early"; done

# A run that fails is told, and the others are trained.
expect 1 plm-pipeline sweep pipeline.yaml --output failing --set trainer.init_from=missing,null
says err 'init_from=missing failed with exit code 2; see ./failing/init_from=missing.log'
says err '1 of 2 runs failed'
says failing/init_from=missing.log 'there is no such folder'
says out '^missing +failed \(2\) +- +- +-$'
says out '^null +complete +[0-9.]+'

# SIGTERM stops the run in order; the same command continues it from its checkpoint.
plm-pipeline sweep pipeline.yaml --output stopped --set seed=1,2 --set trainer.steps=100000 >out 2>err &
child=$!
started=$SECONDS
until [ -s stopped/seed=1/trainer.jsonl ]; do still_waiting "$started" "a first step"; done
kill -TERM "$child"
drained "$child" sweep
says err 'stopped by SIGTERM; the same command continues the sweep'
[ ! -e stopped/seed=2 ] || fail "another run was started"
step=$(jq -s 'map(.step) | max' stopped/seed=1/trainer.jsonl)
expect 0 plm-pipeline sweep pipeline.yaml --output stopped --set seed=1,2 --set "trainer.steps=$((step + 3))"
jq -se "map(.step) == [range(1; $step + 4)]" stopped/seed=1/trainer.jsonl >/dev/null || fail "the run did not go on"
grep -q '"resumed"' stopped/seed=1/trainer.jsonl || fail "the run began again"
[ -e stopped/seed=2/DONE ] || fail "the second run is not complete"

# A sweep that is killed takes its runs along, which stop in order. The same command, given at once, waits for that.
plm-pipeline sweep pipeline.yaml --output killed --set seed=1,2 --set trainer.steps=100000 >out 2>err &
child=$!
started=$SECONDS
until [ -s killed/seed=1/trainer.jsonl ]; do still_waiting "$started" "a first step"; done
kill -KILL "$child"
wait "$child" 2>/dev/null || true
expect 0 plm-pipeline sweep pipeline.yaml --output killed --set seed=1,2 --set trainer.steps=1 --json
jq -se 'map(.state) == ["complete", "complete"]' out >/dev/null || { cat out >&2; fail "after the kill"; }
jq -se 'map(.step) == [range(1; length + 1)] and length > 1' killed/seed=1/trainer.jsonl >/dev/null || fail "the killed run began again"
[ "$(jq -s 'map(.step) | max' killed/seed=2/trainer.jsonl)" -eq 1 ] || fail "the second run"
nobody_left killed || fail "a process is left"
nobody_left stopped || fail "a process is left"
