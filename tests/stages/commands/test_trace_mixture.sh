#!/usr/bin/env bash
# `plm-pipeline trace` of a mixture of corpora: the sources of each step, by the history of the run's newest checkpoint.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}

for corpus in a b; do
  awk -v corpus=$corpus 'BEGIN {
    letters = "LAGVSERTIDPKQNFYMHWC"
    for (i = 0; i < 12; i++) {
      printf ">%s%d\n", corpus, i
      for (j = 0; j < 40 + 10 * i; j++) printf "%s", substr(letters, 1 + (i * 7 + j * 3 + (corpus == "b")) % 20, 1)
      printf "\n"
    }
  }' >$corpus.fasta
  plm-pipeline ingest $corpus.fasta --corpus $corpus --split train=1 -q 2>/dev/null
done
cat >pipeline.yaml <<'END'
version: 1
run: run
corpus: [{path: a, weight: 3}, {path: b, weight: 1}]
seed: 5
data: {max_length: 256}
trainer: {batch_tokens: 1024, micro_batch_tokens: 1024}
END

# the steps 1 to 5, a line each: source, epoch and chunk of each of their chunks
steps() {
  local step
  for step in 1 2 3 4 5; do
    plm-pipeline trace --step $step --json | jq -c '[.source, .epoch, .chunk]' | paste -sd' '
  done
}

# ---- without a checkpoint: as the configuration says from the first step ----
prints 0 steps <<'END'
[0,0,0] [0,0,1] [1,0,0] [0,0,2]
[1,0,1] [0,0,3] [0,0,4] [0,1,0]
[0,1,1] [0,1,2] [1,0,2] [0,1,3]
[0,1,4] [1,0,3] [0,2,0] [0,2,1]
[0,2,2] [1,0,4] [0,2,3] [0,2,4]
END
cp wanted configured
prints 0 plm-pipeline trace --step 2 <<'END'
source 1, epoch 0, chunk 1
         7  start     0  length   112  offset      0  b7
        10  start   112  length   142  offset      0  b10
source 0, epoch 0, chunk 3
         0  start     0  length    42  offset      0  a0
         2  start    44  length    62  offset      0  a2
         1  start   108  length    52  offset      0  a1
source 0, epoch 0, chunk 4
         9  start     0  length   132  offset      0  a9
         8  start   132  length   122  offset      0  a8
source 0, epoch 1, chunk 0
         0  start     0  length    42  offset      0  a0
         2  start    44  length    62  offset      0  a2
         1  start   108  length    52  offset      0  a1
END
expect 0 plm-pipeline trace --step 1 --json
[ "$(head -n 1 out)" = '{"source":0,"epoch":0,"chunk":0,"documents":[{"index":6,"name":"a6","start":0,"length":102,"offset":0},{"index":11,"name":"a11","start":104,"length":152,"offset":0}]}' ] ||
  fail "a chunk in JSON: $(head -n 1 out)"

# ---- the run had one corpus and two chunks a step until its newest checkpoint ----
mkdir -p run/checkpoints/latest
state() { echo "$1" >run/checkpoints/latest/trainer.json; }
state '{"step":2,"cursor":{"chunks":4}}'
prints 0 steps <<'END'
[0,0,0] [0,0,1]
[0,0,2] [0,0,3]
[0,0,4] [0,1,0] [1,0,0] [0,1,1]
[0,1,2] [1,0,1] [0,1,3] [0,1,4]
[0,2,0] [1,0,2] [0,2,1] [0,2,2]
END
# ---- it had another mixture before its third step ----
state '{"step":3,"cursor":{"chunks":8,"mixture":[
  {"step":1,"chunks":2,"mixture_steps":0,"weights":[1,1],"final_weights":[null,null]},
  {"step":3,"chunks":4,"mixture_steps":0,"weights":[3,1],"final_weights":[null,null]}]}}'
prints 0 steps <<'END'
[0,0,0] [1,0,0]
[1,0,1] [0,0,1]
[0,0,2] [0,0,3] [1,0,2] [0,0,4]
[0,1,0] [1,0,3] [0,1,1] [0,1,2]
[0,1,3] [1,0,4] [0,1,4] [0,2,0]
END
# ---- the configuration was changed after the third step ----
state '{"step":3,"cursor":{"chunks":6,"mixture":[
  {"step":1,"chunks":2,"mixture_steps":0,"weights":[1,1],"final_weights":[null,null]}]}}'
prints 0 steps <<'END'
[0,0,0] [1,0,0]
[1,0,1] [0,0,1]
[0,0,2] [1,0,2]
[0,0,3] [1,0,3] [0,0,4] [0,1,0]
[0,1,1] [1,0,4] [0,1,2] [0,1,3]
END
# ---- a checkpoint before the first step, or without a cursor, says nothing ----
for text in '{"step":0,"cursor":{"chunks":0}}' '{"step":2}'; do
  state "$text"
  prints 0 steps <configured
done
state 'no json'
expect 1 plm-pipeline trace --step 1
says err "^plm-pipeline: $PWD/run/checkpoints/latest/trainer.json: it is not JSON$"
state '{"step":3,"cursor":{"mixture":[]}}'
expect 1 plm-pipeline trace --step 1
says err "^plm-pipeline: $PWD/run/checkpoints/latest/trainer.json: the cursor has sources, but no mixture$"
# ---- a history that does not account for the chunks that were consumed ----
for text in '{"step":3,"cursor":{"chunks":8,"mixture":[
  {"step":1,"chunks":2,"mixture_steps":0,"weights":[1,1],"final_weights":[null,null]}]}}' \
  '{"step":3,"cursor":{"chunks":8},"resolved":{"step_chunks":2},"history":[]}'; do
  state "$text"
  expect 1 plm-pipeline trace --step 1
  says err "trainer.json: by its history, 3 steps took 6 chunks, not 8$"
done
# ---- the run knows more corpora than its configuration ----
state '{"step":1,"cursor":{"chunks":3,"mixture":[
  {"step":1,"chunks":3,"mixture_steps":0,"weights":[1,1,1],"final_weights":[null,null,null]}]}}'
expect 2 plm-pipeline trace --step 1
says err '^plm-pipeline: corpus: the run was trained on 3 corpora, but its pipeline.yaml has 2$'

# ---- the run had one corpus and resumes changed the size of a step: 1, 3 and 2 chunks, and 4 from step 5 on ----
changes='[{"step":1,"changes":["trainer.steps: 1 -> 9","trainer.batch_tokens: 256 -> 768"]},
  {"step":3,"changes":["trainer.batch_tokens: 768 -> 512"]}]'
state '{"step":4,"cursor":{"chunks":9},"resolved":{"step_chunks":2},"history":'"$changes}"
prints 0 steps <<'END'
[0,0,0]
[0,0,1] [0,0,2] [0,0,3]
[0,0,4] [0,1,0] [0,1,1]
[0,1,2] [0,1,3]
[0,1,4] [1,0,0] [0,2,0] [0,2,1]
END
sed 's/^corpus:.*/corpus: a/' pipeline.yaml >one.yaml
for step in 1 2 3 4 5; do plm-pipeline trace -c one.yaml --step $step --json | jq -c '[.epoch, .chunk]' | paste -sd' '; done >out
diff - out <<'END' || fail "the steps of one corpus"
[0,0]
[0,1] [0,2] [0,3]
[0,4] [1,0] [1,1]
[1,2] [1,3]
[1,4] [2,0] [2,1] [2,2]
END

# ---- a run that has started is not changed by --set ----
expect 0 plm-pipeline trace -c one.yaml --step 5 --set trainer.batch_tokens=2048 --json # it has no pipeline.yaml yet
[ "$(wc -l <out)" -eq 8 ] || fail "--set before the first start: $(cat out)"
expect 0 plm-pipeline config -c one.yaml
cp out run/pipeline.yaml
for by in '-c one.yaml' '--run run'; do
  expect 2 plm-pipeline trace --step 1 $by --set trainer.steps=5
  says err '^plm-pipeline: --set trainer.steps has no effect on a run that has started$'
  for command in ps metrics checkpoints report down logs; do
    expect 2 plm-pipeline $command $by --set trainer.steps=5
    says err "^plm-pipeline: --set trainer.steps has no effect on $command$"
  done
done
expect 0 plm-pipeline trace -c one.yaml --step 5 --set run=run
rm -r run

# ---- one corpus has no sources ----
prints 0 plm-pipeline trace -c one.yaml --step 2 <<'END'
epoch 0, chunk 4
         9  start     0  length   132  offset      0  a9
         8  start   132  length   122  offset      0  a8
epoch 1, chunk 0
         0  start     0  length    42  offset      0  a0
         2  start    44  length    62  offset      0  a2
         1  start   108  length    52  offset      0  a1
epoch 1, chunk 1
         3  start     0  length    72  offset      0  a3
         4  start    72  length    82  offset      0  a4
         5  start   156  length    92  offset      0  a5
epoch 1, chunk 2
         7  start     0  length   112  offset      0  a7
        10  start   112  length   142  offset      0  a10
END
expect 0 plm-pipeline trace -c one.yaml --step 2 --json
[ "$(jq -c '[has("source"), .epoch, .chunk]' out | paste -sd' ')" = '[false,0,4] [false,1,0] [false,1,1] [false,1,2]' ] ||
  fail "chunks of one corpus: $(cat out)"
expect 2 plm-pipeline trace --step 4294967296
says err '^plm-pipeline: --step 4294967296 is beyond the run.s last step, 300$'
expect 2 plm-pipeline trace
says err '^plm-pipeline: --step N is needed: the number of the step$'
expect 2 plm-pipeline trace --step 1 two
expect 2 plm-pipeline trace --step 1 --set corpus=null
says err '^plm-pipeline: the configuration names no corpus$'
