#!/usr/bin/env bash
# What keys, runs, validate and config print, as a whole.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}

# ---- keys: what it made, and what to do with it ----
prints 0 plm-pipeline keys own <<'END'
own: server.key server.pub
Set network.keys to this folder. `--client NAME` makes a pair for a packer's host.
END
prints 0 plm-pipeline keys own <<'END'
own: server.key server.pub (all of them already exist)
Set network.keys to this folder. `--client NAME` makes a pair for a packer's host.
END
prints 0 plm-pipeline keys own --client host <<'END'
own: server.key server.pub clients/host.key clients/host.pub
Copy clients/host.key and server.pub to the packer's host, and start the packer with --keys DIR.
To shut it out later, remove clients/host.pub.
END
prints 0 plm-pipeline keys own --client host --json <<<'{"directory":"own","client":"host","made":0}'
prints 0 plm-pipeline keys other --json <<<'{"directory":"other","made":1}'
prints 0 plm-pipeline keys third --client host --json <<<'{"directory":"third","client":"host","made":2}'
expect 2 plm-pipeline keys
says err '^plm-pipeline: keys needs the folder to write to: DIR$'
expect 2 plm-pipeline keys one two
[ ! -e one ] || fail "keys made a folder, although it was given two"

# ---- runs: a row for each run, with what is known of it ----
mkdir -p many/{.hidden,a-run-with-a-name-of-more-than-26-letters,done,empty,no-run,old}
for run in many/.hidden many/a-run* many/done many/empty many/old; do echo 'version: 1' >"$run/pipeline.yaml"; done
cat >many/done/trainer.jsonl <<'END'
{"v":1,"step":5,"loss":3.25,"tokens_per_second":10}
{"v":1,"step":6,"loss":3.12349,"tokens_per_second":1234.5}
END
printf '{"v":1,"step":7,"loss":1' >>many/done/trainer.jsonl # not complete yet
cat >many/done/evaluator.jsonl <<'END'
{"step":4,"skipped":"why"}
{"step":4,"split":"valid","loss":2.75}
{"step":4,"split":"test","loss":2.5}
{"step":6,"split":"valid","loss":2.625}
{"step":6,"split":"test","loss":2.25}
{"step":6,"set":"other","split":"valid","loss":1}
{"step":8,"split":"valid","loss":null}
END
echo '{"step":6,"identity":"0123456789abcdeffedcba9876543210"}' >many/done/DONE
echo '{"step":2,"loss":null}' >many/a-run-with-a-name-of-more-than-26-letters/trainer.jsonl
echo '{"v":1,"step":1000000,"loss":12.5,"tokens_per_second":1e6}' >many/old/trainer.jsonl
prints 0 plm-pipeline runs many <<'END'
run                        state         step       loss      valid     tokens/s  packers
a-run-with-a-name-of-more- stopped          2          -          -            -        -
done                       complete         6     3.1235     2.6250         1234        -
empty                      stopped          -          -          -            -        -
old                        stopped    1000000    12.5000          -      1000000        -
END
prints 0 plm-pipeline runs many --json <<'END'
{"name":"a-run-with-a-name-of-more-than-26-letters","run":"many/a-run-with-a-name-of-more-than-26-letters","state":"stopped","step":2,"loss":null,"evaluator_loss":null,"tokens_per_second":null}
{"name":"done","run":"many/done","state":"complete","step":6,"loss":3.12349,"evaluator_loss":2.625,"tokens_per_second":1234.5}
{"name":"empty","run":"many/empty","state":"stopped","step":null,"loss":null,"evaluator_loss":null,"tokens_per_second":null}
{"name":"old","run":"many/old","state":"stopped","step":1000000,"loss":12.5,"evaluator_loss":null,"tokens_per_second":1000000}
END
cp wanted rows
# a failed run: its row, when and why it failed, and the command that continues it
mkdir -p broken/one
echo 'version: 1' >broken/one/pipeline.yaml
echo '{"time":1767225600,"exit":5,"stage":"trainer.0","cause":"ended with exit code 5"}' >broken/one/FAILED
TZ=UTC prints 0 plm-pipeline runs broken <<'END'
run                        state         step       loss      valid     tokens/s  packers
one                        failed           -          -          -            -        -
  2026-01-01 00:00:00: trainer.0 ended with exit code 5
  continue with: plm-pipeline up broken/one/pipeline.yaml
END
prints 0 plm-pipeline runs broken --json <<'END'
{"name":"one","run":"broken/one","state":"failed","step":null,"loss":null,"evaluator_loss":null,"tokens_per_second":null,"failure":{"time":1767225600,"exit":5,"stage":"trainer.0","cause":"ended with exit code 5","continue":"plm-pipeline up broken/one/pipeline.yaml"}}
END
sed 's/many/runs/' rows >in-runs
mv many runs # the default
prints 0 plm-pipeline runs --json <in-runs
prints 0 plm-pipeline runs own </dev/null
says err '^plm-pipeline: there are no runs in own$'
prints 0 plm-pipeline runs own --json </dev/null
[ ! -s err ] || fail "runs --json says: $(cat err)"
expect 1 plm-pipeline runs nowhere
says err '^plm-pipeline: cannot read the folder nowhere: No such file or directory$'
expect 2 plm-pipeline runs one two
says err 'unexpected argument "two"'

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
prints 0 plm-pipeline validate mixed.yaml --set trainer.init_from=gone <<<'mixed.yaml: valid'
says err "warning: trainer.init_from: $PWD/gone does not exist on this host"
prints 0 plm-pipeline validate mixed.yaml --json <<<'[]'
printf '>a\nMKV\n>b\nMKLV\n' | plm-pipeline ingest -q - --corpus here --split train=1
echo 'corpus: here' >here.yaml
prints 0 plm-pipeline validate here.yaml <<<'here.yaml: valid'
[ ! -s err ] || fail "validate warns of a corpus that is there: $(cat err)"
expect 2 plm-pipeline validate here.yaml --set data.tokenizer=byte
says err "corpus: $PWD/here was made for the tokenizer esm, but data.tokenizer is byte"
prints 0 plm-pipeline validate -q </dev/null
prints 0 plm-pipeline validate --json <<<'[]'
prints 2 plm-pipeline validate --set seed=x --set trainer.steps=0 --json <<'END'
["--set seed: seed: expected a whole number, found \"x\"","--set trainer.steps: trainer.steps: 0 is out of range: must be at least 1 and at most 1000000000000 steps"]
END
[ ! -s err ] || fail "validate --json also says: $(cat err)"
expect 2 plm-pipeline validate pipeline.yaml elsewhere/some.yaml
says err 'unexpected argument "elsewhere/some.yaml"'
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

# what tasks read, if it is here: a probe's table with its columns, and folders
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
task 'kind: contacts'
expect 2 plm-pipeline validate task.yaml
says err "evaluator.tasks: t: $PWD/table.csv is not a folder; contacts need a folder of NAME.fasta and NAME.contacts"
task 'kind: assays, reference: list.csv'
expect 2 plm-pipeline validate task.yaml
says err "evaluator.tasks: t: $PWD/table.csv is not a folder; assays need the folder of their CSV files"
sed -i 's/table.csv/absent/' task.yaml
prints 0 plm-pipeline validate task.yaml <<<'task.yaml: valid'
says err "warning: evaluator.tasks: t: $PWD/absent does not exist on this host"
says err "warning: evaluator.tasks: t: $PWD/list.csv does not exist on this host"

# ---- config: the place of each value that is not the default ----
cat >many.yaml <<'END'
version: 1
seed: 7

trainer:
  steps: 5
  schedule:
     warmup_steps: 2
evaluator: {splits: [valid, test]}
END
PLM_DATA_MAX_LENGTH=256 PLM_TRAINER_STEPS=6 \
  expect 0 plm-pipeline config many.yaml --set network.feed=tcp://127.0.0.1:1 --set trainer.ema=0.5 --run here
grep ' # ' out | grep -v '# default$' | sed 's/  *# /|/' >origins
diff - origins <<END || fail "the origins of values"
version: 1|many.yaml:1:10
run: $PWD/here|--run
seed: 7|many.yaml:2:7
  feed: tcp://127.0.0.1:1|--set
  max_length: 256|PLM_DATA_MAX_LENGTH
  steps: 6|PLM_TRAINER_STEPS
    warmup_steps: 2|many.yaml:7:20
  ema: 0.5|--set
  splits: [valid, test]|many.yaml:8:21
END
says out '^seed: 7 {41} # many.yaml:2:7$' # the column of the comments
[ "$(sed -n '/^trainer:/,/^evaluator:/p' out | grep -c '^  masking:$')" = 1 ] || fail "a section has another heading"
PLM_DATA_MAX_LENGTH=256 expect 0 plm-pipeline config many.yaml --json --set trainer.ema=0.5 --run here
jq -c 'to_entries[] | select(.value.origin != "default") | [.key, .value.value, .value.origin]' out >origins
diff - origins <<END || fail "the origins of values in JSON"
["version",1,"many.yaml:1:10"]
["run","$PWD/here","--run"]
["seed",7,"many.yaml:2:7"]
["data.max_length",256,"PLM_DATA_MAX_LENGTH"]
["trainer.steps",5,"many.yaml:5:10"]
["trainer.schedule.warmup_steps",2,"many.yaml:7:20"]
["trainer.ema",0.5,"--set"]
["evaluator.splits","[valid, test]","many.yaml:8:21"]
END
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
PLM_MODEL_HIDDEN_SIZE=320 expect 0 plm-pipeline config preset.yaml --json
jq -c 'to_entries[] | select(.value.origin != "default") | [.key, .value.value, .value.origin]' out >origins
diff - origins <<'END' || fail "the origins of a preset's values in JSON"
["model.preset","35M","preset.yaml:1:17"]
["model.architecture","transformer","model.preset 35M"]
["model.hidden_size",320,"PLM_MODEL_HIDDEN_SIZE"]
["model.num_attention_heads",20,"model.preset 35M"]
["model.num_hidden_layers",3,"preset.yaml:1:41"]
["model.expansion_ratio",4,"model.preset 35M"]
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
expect 2 plm-pipeline config one two
says err 'unexpected argument "two"'

# ---- words that no command takes ----
for words in 'completion bash plm-packer x' 'down x' 'scale packer=1 x' 'doctor pipeline.yaml x' 'export x' 'ps x' \
  'slurm pipeline.yaml x' 'k8s pipeline.yaml x' 'report 1 2 3 4 5 6 7 8 x' 'join tcp://a:1 x'; do
  # shellcheck disable=SC2086 # a command and its words
  expect 2 plm-pipeline $words
  says err '^plm-pipeline: unexpected argument "x"$'
done
expect 2 plm-pipeline restart packer.0 trainr.1
says err '^plm-pipeline: "trainr.1" is not a stage$'
expect 2 plm-pipeline scale
says err '^plm-pipeline: packer=N is needed: the number of packers$'
for wrong in packer=257 packer= packer=x packer=1x packer=-1 trainer=1 packer; do
  expect 2 plm-pipeline scale "$wrong"
  says err "^plm-pipeline: expected packer=N with N from 0 to 256, found \"$wrong\"$"
done

# ---- join: what is refused before any packer starts ----
plm-pipeline keys head --client here >/dev/null
mkdir joining && cp head/server.pub head/clients/here.key joining
chmod 700 joining
join() { expect "$1" plm-pipeline join "${@:2}"; }
join 2
says err "^plm-pipeline: name the run's feed, as in tcp://HEAD:5701$"
join 2 tcp://127.0.0.1:1 --fetch --corpus plain --keys joining
says err '^plm-pipeline: --fetch and --corpus exclude each other$'
join 2 tcp://127.0.0.1:1 --keys joining
says err '^plm-pipeline: --corpus DIR is missing, or --fetch$'
join 2 tcp://127.0.0.1:1 --corpus plain
says err '^plm-pipeline: --keys DIR is missing$'
join 2 ipc://socket --corpus plain --keys joining
says err '^plm-pipeline: "ipc://socket" is not of the form tcp://HOST:PORT$'
for option in packers=0 packers=257 threads=0 threads=9; do
  join 2 tcp://127.0.0.1:1 --corpus plain --keys joining "--$option"
  case $option in packers*) most=256 ;; *) most=8 ;; esac
  says err "^plm-pipeline: --${option%=*} must be from 1 to $most$"
done
for limit in 0 1000001; do
  join 2 tcp://127.0.0.1:1 --fetch --keys joining --cache cache --cache-limit $limit
  says err '^plm-pipeline: --cache-limit must be from 1 to 1000000$'
done
mkdir -p runs/trained/checkpoints/latest runs/locked
touch runs/locked/trainer.lock
for run in trained locked; do
  join 2 tcp://127.0.0.1:1 --corpus plain --keys joining --run runs/$run
  says err "^plm-pipeline: runs/$run is the folder of a run$"
done
join 1 tcp://127.0.0.1:1 --corpus missing --keys joining
[ ! -e runs/join-127.0.0.1-1 ] || fail "join made a folder, although the corpus is missing"
mkdir -p 'runs/join----1--5701/checkpoints/latest' # the folder of tcp://[::1]:5701
join 2 'tcp://[::1]:5701' --corpus plain --keys joining
says err '^plm-pipeline: runs/join----1--5701 is the folder of a run$'

# ---- evaluate, embed, generate and score become plm-evaluator, with the same words ----
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin
for task in evaluate embed generate score; do
  expect 1 bin/plm-pipeline $task one
  says err "^plm-pipeline: $PWD/bin/plm-evaluator: No such file or directory$"
done
# shellcheck disable=SC2016 # the words of the script
printf '#!/bin/sh\nprintf "%%s\\n" "$@"\nexit 7\n' >bin/plm-evaluator
chmod +x bin/plm-evaluator
for task in evaluate embed generate score; do
  prints 7 bin/plm-pipeline $task -q --checkpoint 'a b' one --threads=3 --set x=y -- --two <<END
$task
--quiet
--checkpoint=a b
--threads=3
--set=x=y
--
one
--two
END
done
