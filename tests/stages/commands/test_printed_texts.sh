#!/usr/bin/env bash
# What runs, validate and config print beyond what tests/stages/commands/test_command_*.c compare.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}

# ---- runs: those of the folder `runs` ----
mkdir -p runs/{done,empty}
for run in runs/*; do echo 'version: 1' >"$run/pipeline.yaml"; done
echo '{"v":1,"step":6,"loss":3.12349,"tokens_per_second":1234.5}' >runs/done/trainer.jsonl
printf '{"v":1,"step":7,"loss":1' >>runs/done/trainer.jsonl # not complete yet
echo '{"step":6,"split":"valid","loss":2.625}' >runs/done/evaluator.jsonl
echo '{"step":6,"identity":"0123456789abcdeffedcba9876543210"}' >runs/done/DONE
prints 0 plm-pipeline runs --json <<'END'
{"name":"done","run":"runs/done","state":"complete","step":6,"loss":3.12349,"evaluator_loss":2.625,"tokens_per_second":1234.5}
{"name":"empty","run":"runs/empty","state":"stopped","step":null,"loss":null,"evaluator_loss":null,"tokens_per_second":null}
END

# ---- validate ----
mkdir elsewhere
echo 'seed: 7' | tee pipeline.yaml >elsewhere/some.yaml
prints 0 plm-pipeline validate <<<'pipeline.yaml: valid'
prints 0 plm-pipeline validate ./elsewhere/some.yaml <<<'elsewhere/some.yaml: valid'
prints 0 plm-pipeline validate "$PWD/pipeline.yaml" <<<"$PWD/pipeline.yaml: valid"
says err "^plm-pipeline: warning: corpus: $PWD/.* does not exist on this host; make it with .plm-pipeline ingest"
mkdir no-corpus
cat >mixed.yaml <<END
corpus: [{path: no-corpus}, {path: nowhere}]
evaluator: {sets: [{name: far, corpus: held.corpus, split: valid}]}
END
prints 0 plm-pipeline validate mixed.yaml <<<'mixed.yaml: valid'
says err "warning: corpus: $PWD/no-corpus is not a corpus; make it with"
says err "warning: corpus: $PWD/nowhere does not exist on this host; make it with"
says err "warning: evaluator.sets: $PWD/held.corpus does not exist on this host; make it with"
printf '>a\nMKV\n>b\nMKLV\n' | plm-pipeline ingest -q - --corpus here --split train=1
echo 'corpus: here' >here.yaml
prints 0 plm-pipeline validate here.yaml <<<'here.yaml: valid'
[ ! -s err ] || fail "validate warns of a corpus that is there: $(cat err)"
prints 2 plm-pipeline validate --set seed=x --set trainer.steps=0 --json <<'END'
["--set seed: seed: expected a whole number, found \"x\"","--set trainer.steps: trainer.steps: 0 is out of range: must be at least 1 and at most 1000000000000 steps"]
END
[ ! -s err ] || fail "validate --json also says: $(cat err)"
# what would be wrong on this host, if the corpus is there
small_corpus plain 2>/dev/null
expect 2 plm-pipeline validate --set corpus=plain --set data.sampling=clusters
says err 'clusters'
expect 0 plm-pipeline validate --set corpus=plain
expect 0 plm-pipeline validate --set corpus=missing --set data.sampling=clusters # it may be made later
echo '{' >plain/corpus.json
expect 1 plm-pipeline validate --set corpus=plain --set data.sampling=clusters
expect 1 plm-pipeline validate --set corpus=plain
says err 'plain/corpus.json is not the description of a corpus'

# what tasks read, if it is here: a probe's table with its columns
printf 'sequence,stability,part\nMKV,1.5,train\nMKL,2.5,test\n' >table.csv
task() { echo "evaluator: {tasks: [{name: t, path: table.csv, $1}]}" >task.yaml; }
task 'target: stability, split: part'
prints 0 plm-pipeline validate task.yaml <<<'task.yaml: valid'
! grep -q "evaluator.tasks" err || fail "validate warns of a table that is there: $(cat err)"
task 'target: tm, split: part'
expect 2 plm-pipeline validate task.yaml
says err 'the table has no column "tm"'
says err 'table.csv:1'
task 'target: part, task: regression'
expect 2 plm-pipeline validate task.yaml
says err '"train" is not a finite number'
says err 'table.csv:2, column 3 .part.'

# ---- config: every key, and what gives values to others ----
echo 'seed: 7' >many.yaml
expect 0 plm-pipeline config many.yaml --json --set trainer.ema=0.5
keys=$(plm-pipeline config --reference | grep -c '^| `[a-z_0-9.]*` |') || true
[ "$(jq length out)" -eq "$keys" ] || fail "config --json has $(jq length out) of $keys keys"
jq -e '.corpus.value == "'"$PWD"'/data/sample.corpus" and ."network.keys".value == null and
  ."trainer.ema".value == 0.5 and ."data.packing".value == "best_fit"' out >/dev/null || fail "values in JSON: $(cat out)"

echo 'model: {preset: 35M, num_hidden_layers: 3}' >preset.yaml
PLM_MODEL_HIDDEN_SIZE=320 expect 0 plm-pipeline config preset.yaml
grep ' # ' out | grep -v '# default$' | sed 's/  *# /|/' >origins
diff - origins <<'END' || fail "the origins of a preset's values"
  preset: 35M|preset.yaml:1:17
  architecture: transformer|model.preset 35M
  hidden_size: 320|PLM_MODEL_HIDDEN_SIZE
  num_attention_heads: 20|model.preset 35M
  num_hidden_layers: 3|preset.yaml:1:41
  expansion_ratio: 4|model.preset 35M
END
expect 0 plm-pipeline validate preset.yaml
says err '^model.num_hidden_layers: 3 is given and overrides the 12 of model.preset 35M$'

# ---- config --manual: keys of each kind ----
COLUMNS=72 expect 0 plm-pipeline config --manual
[ "$(grep -c '^[a-z]' out)" -eq "$keys" ] || fail "the manual has $(grep -c '^[a-z]' out) of $keys keys"
manual_of() { sed -n "/^$1\$/,/on resume: /p" out >got && diff - got || fail "the manual of $1"; }
manual_of version <<'END'
version
    Version of this file's format.
    a whole number; default 1
    on resume: free
END
manual_of seed <<'END'
seed
    Seed of the data plan, the initial weights and the training masks.
    a whole number; default 1; from 0, to 18446744073709551615
    PLM_SEED; on resume: refused
END
manual_of trainer.steps <<'END'
trainer.steps
    Length of the run.
    a whole number, in steps; default 300; from 1, to 1000000000000
    PLM_TRAINER_STEPS; on resume: changes the run
END
manual_of trainer.ema <<'END'
trainer.ema
    Decay of the exponential moving average of the weights. 0: keep no
    average.
    a number; default 0.0; from 0, below 1
    PLM_TRAINER_EMA; on resume: changes the run
END
manual_of evaluator.mask_rates <<'END'
evaluator.mask_rates
    Further mask rates, for loss_by_mask_rate.
    a list of numbers; default []; above 0, to 1
    PLM_EVALUATOR_MASK_RATES; on resume: free
END

# ---- words that restart and scale do not take ----
expect 2 plm-pipeline restart packer.0 trainr.1
says err '^plm-pipeline: "trainr.1" is not a stage$'
expect 2 plm-pipeline scale
says err '^plm-pipeline: packer=N is needed: the number of packers$'
for wrong in packer=257 packer= packer=x packer=1x packer=-1 trainer=1 packer; do
  expect 2 plm-pipeline scale "$wrong"
  says err "^plm-pipeline: expected packer=N with N from 0 to 256, found \"$wrong\"$"
done

# ---- join: the folder that it would make ----
plm-pipeline keys head --client here >/dev/null
mkdir joining && cp head/server.pub head/clients/here.key joining
chmod 700 joining
join() { expect "$1" plm-pipeline join "${@:2}"; }
join 1 tcp://127.0.0.1:1 --corpus missing --keys joining
[ ! -e runs/join-127.0.0.1-1 ] || fail "join made a folder, although the corpus is missing"
mkdir -p 'runs/join----1--5701/checkpoints/latest' # the folder of tcp://[::1]:5701
join 2 'tcp://[::1]:5701' --corpus plain --keys joining
says err '^plm-pipeline: runs/join----1--5701 is the folder of a run$'
