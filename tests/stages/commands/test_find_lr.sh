#!/usr/bin/env bash
# `up --find-lr`: rates that grow exponentially in the ratio of the groups, suggestions, an early end when the loss
# diverges, and nothing left behind, also after Ctrl-C.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
run() { plm-pipeline up pipeline.yaml --run runs/run "$@"; }
nothing_is_left() {
  [ ! -e runs ] || [ -z "$(ls -A runs)" ] || fail "left behind: $(ls -A runs)"
}

# Bad input is refused before anything starts.
expect 2 run --lr-steps 20
says err '--lr-range and --lr-steps need --find-lr'
expect 2 run --find-lr --detach
says err '--find-lr starts no run, so --detach has no meaning; leave it out'
expect 2 run --find-lr --resume never
says err 'so --resume has no meaning'
expect 2 run trainer --find-lr
says err '--find-lr takes no stages; name only the configuration'
for range in 1 1: :1 1:1 2:1 0:1 -1:1 1e-3:101 1:2x nan:1 1:nan; do
  expect 2 run --find-lr --lr-range "$range"
  says err "--lr-range needs LOW:HIGH, not \"$range\""
done
expect 2 run --find-lr --lr-steps 9
expect 2 run --find-lr --lr-steps 100001
expect 2 run --find-lr --set trainer.optimizer.lr_hidden=0
says err 'trainer.optimizer.lr_hidden is 0, so the other rates have no ratio to it'
expect 2 run --find-lr --set trainer.optimizer.lr_hidden=0.01 --set trainer.optimizer.lr_head=2
says err 'with lr_hidden at 1, another rate would be 200, but 100 is the most'
says err 'choose HIGH at most 0.5 with --lr-range'
nothing_is_left

# The rates; variables of the environment that are settings count once, and not again in the test itself. The steps of a
# profile are those of the run.
export PLM_TRAINER_STEPS=60 PLM_TRAINER_OPTIMIZER_LR_EMBED=0.02
expect 0 run --find-lr --lr-range 1e-4:1e-1 --lr-steps 31 --set trainer.optimizer.lr_hidden=0.01 \
  --set trainer.profile.steps=40-42 --json
unset PLM_TRAINER_STEPS PLM_TRAINER_OPTIMIZER_LR_EMBED
jq -e '(.lr_hidden | length) == 31 and (.smoothed_loss | length) == 31 and .diverged == false' out >/dev/null ||
  { cat out >&2; fail "the steps of the test"; }
jq -e '[.lr_hidden[0], .lr_hidden[10], .lr_hidden[20], .lr_hidden[30]] | to_entries
       | all(.[]; (.value / pow(10; .key - 4) - 1) | fabs < 1e-9)' out >/dev/null ||
  { cat out >&2; fail "the rates of the test"; }
jq -e '(.smoothed_loss | min) as $least | (.smoothed_loss | index($least)) as $best
       | (.minimum_tenth * 10 / .lr_hidden[$best] - 1 | fabs < 1e-9)
       and .steepest_descent >= .lr_hidden[3] and .steepest_descent < .lr_hidden[$best]' out >/dev/null ||
  { cat out >&2; fail "the suggestions"; }
nothing_is_left

# What a person sees: a curve, and settings that keep the ratio of the groups.
expect 0 run --find-lr --lr-range 1e-4:1e-1 --lr-steps 31 --set trainer.optimizer.lr_hidden=0.01 \
  --set trainer.optimizer.lr_embed=0.02 --set trainer.optimizer.lr_scalar=0.005
says err 'training 31 steps while lr_hidden grows from 0.0001 to 0.1'
says out 'loss over lr_hidden  - smoothed'
says out '^ +0.0001 +0.1$'
[ "$(grep -c '^steepest descent: ' out)" -eq 1 ] || fail "no steepest descent"
[ "$(grep -c '^a tenth of the rate with the least loss: ' out)" -eq 1 ] || fail "no tenth"
[ "$(grep -o 'lr_[a-z]*=[0-9.e-]*' out | sed -n '1,4s/.*=//p' |
  awk '{ v[NR] = $1 } END { print (v[2] / v[1] > 1.8 && v[2] / v[1] < 2.2 && v[4] / v[1] > 0.45 && v[4] / v[1] < 0.55) }')" = 1 ] ||
  fail "the ratio of the groups: $(grep -- --set out)"
nothing_is_left

# A rate of 50 makes the loss of a model without a cap on its logits diverge before the last step. The run itself stays
# as it is.
expect 0 plm-pipeline up pipeline.yaml --run runs/run
find runs/run -type f -printf '%P %s %T@\n' | sort >before
expect 0 run --find-lr --lr-range 1e-3:50 --lr-steps 120 --set trainer.optimizer.name=adamw --set model.soft_logit_cap=10000
says err 'training 120 steps'
says out 'the loss diverged after [0-9]+ of 120 steps'
says out '^steepest descent: 0\.0'
! grep -q continue err || fail "the test is told as a run that continues"
find runs/run -type f -printf '%P %s %T@\n' | sort >after
cmp before after || fail "the run's folder has changed"
[ "$(ls runs)" = run ] || fail "left behind: $(ls runs)"

# A failure of the test is told with its cause.
expect 1 run --find-lr --set trainer.init_from=missing
says err "missing: there is no such folder"
says err "the test failed after 0 steps .exit code 2.; the lines above say why"
[ "$(ls runs)" = run ] || fail "left behind: $(ls runs)"

# Ctrl-C ends it, and leaves nothing behind.
plm-pipeline up pipeline.yaml --run runs/run --find-lr --lr-steps 100000 >out 2>err &
child=$!
started=$SECONDS
until [ -n "$(cat runs/run.find-lr-*/trainer.jsonl 2>/dev/null)" ]; do still_waiting "$started" "a first step"; done
kill -INT "$child"
status=0
wait "$child" || status=$?
[ "$status" -eq 130 ] || { cat err >&2; fail "after Ctrl-C: exit $status"; }
says err 'stopped by Ctrl-C; no learning rate was found'
[ "$(ls runs)" = run ] || fail "left behind: $(ls runs)"
nobody_left runs/run.find-lr || fail "a process is left"
