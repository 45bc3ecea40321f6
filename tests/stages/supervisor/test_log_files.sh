#!/usr/bin/env bash
# Logs of a run are rotated at their limit; `logs` and the root cause of a failure read across the files.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml unet
export PLM_LOG_BYTES=200
plm-pipeline up -d pipeline.yaml 2>up.err
plm-pipeline logs -f >followed 2>err &
follower=$!
expect 0 plm-pipeline wait
wait $follower

for stage in trainer.0 evaluator.0 packer.0; do
  [ -e run/logs/$stage.log ] || fail "no log of $stage"
done
[ -e run/logs/evaluator.0.log.1 ] || fail "the evaluator's log was not rotated: $(ls -l run/logs)"
plm-pipeline up -d pipeline.yaml 2>up.err # again, although there is nothing left to do
expect 0 plm-pipeline wait
[ -e run/logs/supervisor.log.1 ] || fail "the supervisor's log was not rotated: $(ls -l run/logs)"
for file in run/logs/*; do
  [ "$(stat -c %s "$file")" -lt 1000 ] || fail "$file is too large"
done
[ "$(find run/logs -name 'evaluator.0.log*' | wc -l)" -le 5 ] || fail "too many files: $(ls run/logs)"

# every file is read, in order, and what was followed is what is there
plm-pipeline logs evaluator >all 2>err
find run/logs -name 'evaluator.0.log*' | sort -r | xargs cat | diff - all || fail "logs prints something else than the files hold"
[ "$(grep -c 'step .* valid: loss' all)" -eq 4 ] || fail "evaluations are missing: $(cat all)"
[ "$(grep -c 'evaluator.0 .*step .* valid: loss' followed)" -eq 4 ] || fail "logs -f lost lines: $(cat followed)"
plm-pipeline logs evaluator --tail 3 >last 2>err
tail -n 3 all | diff - last || fail "--tail 3 prints something else"

# the last lines of a failed stage, although its log was rotated
PLM_LOG_BYTES=100 stopping_at 'write:*/trainer.jsonl#3' plm-pipeline up pipeline.yaml --run failed --set trainer.restart=no \
  >failed.out 2>failed.err </dev/null &
up=$!
wait_for 60 test -s failed/trainer.jsonl
trainer=$(jq .pid failed/trainer.lock)
until_stopped "$trainer" || fail "the trainer ended before step 3"
[ -e failed/logs/trainer.0.log.1 ] || fail "the trainer's log was not rotated: $(ls -l failed/logs)"
kill -KILL "$trainer"
code=0
wait $up || code=$?
[ $code -eq 1 ] || fail "the run of a killed trainer ended with $code"
says failed.err '^  \| .*training on cpu'
says failed.err 'failed: trainer.0 was killed by signal 9'
