#!/usr/bin/env bash
# What `up --dry-run` prints, as a whole, for every answer that the trainer can give about its memory. The trainer is a
# script that prints $ANSWER; the other programs do not run.
. "$PLM_ROOT/tests/support/shell/lib.sh"
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin/
printf '#!/bin/sh\n[ -z "$ANSWER" ] || printf "%%s\\n" "$ANSWER"\nexit "${CODE:-0}"\n' >bin/plm-trainer
chmod +x bin/plm-trainer
pipeline=$PLM_TMP/bin/plm-pipeline
export ANSWER='' PLM_MPI_LIBRARY=$PLM_TMP/engine.so

# prints OPTION...: the dry run is standard input; free space on the disk, cores, numbers of processes and fingerprints are N
prints() {
  expect 0 "$pipeline" up --dry-run "$@"
  sed -E "s|$PLM_TMP|HERE|g; /^  checkpoints /s/[0-9.]+ MB are free/N MB are free/; s/^  [0-9]+ here;/  N here;/
    s/pid [0-9]+ /pid N /; s/--fingerprint [0-9a-f,]+/--fingerprint N/; s/localhost:[0-9]+/localhost:N/" out >printed
  diff printed - || fail "up --dry-run $* differs"
}
# about_memory ANSWER: the same for the part that the trainer's answer decides
about_memory() {
  ANSWER=$1 expect 0 "$pipeline" up --dry-run
  sed -n '/^memory$/,/^disk$/p' out | sed '1d; $d' >printed
  diff printed - || fail "the answer $1 differs"
}

cat >pipeline.yaml <<'Y'
corpus: null
run: runs/a run
network: {feed: 'tcp://127.0.0.1:*', evaluation_feed: 'ipc://e', announcements: 'ipc://a'}
packer: {instances: 3}
trainer: {steps: 1000, ema: 0.9, checkpoint: {every: 100, keep_last: 2, keep_best: 1, max_unevaluated: 4}}
Y

# ---- a new run on the CPU ----
ANSWER='{"device":"cpu","total":1230000,"device_bytes":77000000,"parameter_count":250000,"free_bytes":7890000}' prints <<'END_PRINTED'
a new run would start
graph
  corpus        (that of the packers)
    -> packer x 3
    -> trainer    feed tcp://127.0.0.1:*, announcements ipc://HERE/a
    -> evaluator  feed ipc://HERE/e
  run           HERE/runs/a run
command lines
  HERE/bin/plm-trainer -c HERE/runs/a run/pipeline.yaml --run HERE/runs/a run
  HERE/bin/plm-evaluator -c HERE/runs/a run/pipeline.yaml --run HERE/runs/a run
  HERE/bin/plm-packer -c HERE/runs/a run/pipeline.yaml --run HERE/runs/a run   (x 3)
memory
  trainer       1.2 MB for 250000 parameters (7.9 MB are free)
disk
  checkpoints   at most 32.0 MB: 4.0 MB each (N MB are free)
                these fit
cores
  N here; trainer.threads 0 (all), evaluator.threads auto
ports
  network.feed             tcp://127.0.0.1:*: free
  network.announcements    ipc://HERE/a: free
  network.evaluation_feed  ipc://HERE/e: free
END_PRINTED

# ---- what the memory says ----
about_memory '{"device":"cuda","device_bytes":1230000,"host_bytes":4560000,"parameter_count":25,"free_bytes":7890000,"fits":true,"largest_micro_batch_tokens":4096}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters, on the CUDA device (7.9 MB are free); 4.6 MB on the host
                this fits; largest trainer.micro_batch_tokens that fits: 4096
END_PRINTED
about_memory '{"total":1230000,"parameter_count":25,"free_bytes":0,"unknown":"no driver","fits":false,"largest_micro_batch_tokens":1}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters (free memory is unknown: no driver)
                this does not fit; largest trainer.micro_batch_tokens that fits: 1
END_PRINTED
about_memory '{"total":1230000,"parameter_count":25,"fits":false,"largest_micro_batch_tokens":0}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters (free memory is unknown: no answer)
                no micro-batch fits
END_PRINTED
about_memory '{"total":1230000,"parameter_count":25,"free_bytes":1000000,"ranks":1,"hosts":1}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters (1.0 MB are free)
END_PRINTED
about_memory '{"total":1230000,"parameter_count":25,"free_bytes":1000000,"ranks":2,"hosts":1,"owner_imbalance":1.256,"sent_in_group":1234567,"sent_on_rail":0,"group_size":2}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters (1.0 MB are free)
ranks
  2 on 1 host; memory is that of the rank that needs most
  the largest part of Muon's work is 1.26 times the mean
  a rank sends 1.23 MB a step within its group of 2, and 0.00 MB to other groups
END_PRINTED
about_memory '{"total":1230000,"parameter_count":25,"free_bytes":1000000,"ranks":8,"hosts":2,"owner_imbalance":1.0,"sent_in_group":7000,"sent_on_rail":2345678,"group_size":4}' <<'END_PRINTED'
  trainer       1.2 MB for 25 parameters (1.0 MB are free)
ranks
  8 on 2 hosts; memory is that of the rank that needs most
  the largest part of Muon's work is 1.00 times the mean
  a rank sends 0.01 MB a step within its group of 4, and 2.35 MB to other groups
END_PRINTED

# ---- several ranks, only two stages, chosen threads, and ports that are taken ----
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True); time.sleep(3600)' >port &
wait_for 10 test -s port
printf '#!/bin/sh\necho "mpirun (Open MPI) 4.1.4"\n' >bin/mpirun
chmod +x bin/mpirun
: >engine.so
sed -i 's/ema: 0.9/ema: 0/; s/every: 100/every: 250/' pipeline.yaml
PATH=$PLM_TMP/bin:$PATH CODE=3 ANSWER='{"device":"cpu"}' prints trainer evaluator --set trainer.ranks=2 --set trainer.threads=3 \
  --set evaluator.threads=5 --set "network.feed=tcp://127.0.0.1:$(cat port)" --set metrics.prometheus=127.0.0.1:0 <<END_PRINTED
a new run would start
graph
  corpus        (that of the packers)
    -> trainer    feed tcp://127.0.0.1:$(cat port), announcements ipc://HERE/a
                  2 ranks
    -> evaluator  feed ipc://HERE/e
  run           HERE/runs/a run
command lines
  HERE/bin/mpirun -np 2 --bind-to none --map-by slot --host localhost:N --oversubscribe HERE/bin/plm-trainer -c HERE/runs/a run/pipeline.yaml --run HERE/runs/a run
  HERE/bin/plm-evaluator -c HERE/runs/a run/pipeline.yaml --run HERE/runs/a run
memory
  unknown: plm-trainer did not answer
cores
  N here; trainer.threads 3, evaluator.threads 5
ports
  network.feed             tcp://127.0.0.1:$(cat port): in use by pid N (python3)
  network.announcements    ipc://HERE/a: free
  network.evaluation_feed  ipc://HERE/e: free
  metrics.prometheus       127.0.0.1:0: free
END_PRINTED
# checkpoints without an average, of which the steps publish fewer than are kept
ANSWER='{"device":"cpu","parameter_count":250000}' expect 0 "$pipeline" up --dry-run
says out '^  checkpoints   at most 18.0 MB: 3.0 MB each '

# ---- a mixture, of which the trainer gets the fingerprints; a run that would be resumed ----
small_corpus one 60
small_fasta two.fasta 60 2
expect 0 "$pipeline" ingest two.fasta --corpus two --split train=0.8,valid=0.1,test=0.1 -q
mkdir -p mixed/checkpoints/step_00000007 mixed/checkpoints/step_00000012
echo '{"step":12,"step_ms":1800}' >mixed/trainer.jsonl
sed 's|^corpus:.*|corpus: [{path: one, weight: 2}, {path: two}]|; s|^run:.*|run: mixed|' pipeline.yaml >mixed.yaml
ANSWER='{"device":"cpu"}' prints mixed.yaml --scale packer=1 <<'END_PRINTED'
the run would resume; its newest checkpoint is that of step 12
graph
  corpus        HERE/one
                HERE/two
    -> packer x 1
    -> trainer    feed tcp://127.0.0.1:*, announcements ipc://HERE/a
    -> evaluator  feed ipc://HERE/e
  run           HERE/mixed
command lines
  HERE/bin/plm-trainer -c HERE/mixed/pipeline.yaml --run HERE/mixed --fingerprint N
  HERE/bin/plm-evaluator -c HERE/mixed/pipeline.yaml --run HERE/mixed
  HERE/bin/plm-packer -c HERE/mixed/pipeline.yaml --run HERE/mixed
length
  1,000 steps are 444 epochs of 47 sequences of the first corpus, about 30:00 at the pace of the run's last step
  advice        beyond 4 epochs, repeated data teaches less and less (Muennighoff et al., 2023): 4 epochs are 9 steps
memory
  trainer       0.0 MB for 0 parameters (free memory is unknown: no answer)
disk
  checkpoints   at most 0.0 MB: 0.0 MB each (N MB are free)
                these fit
cores
  N here; trainer.threads 0 (all), evaluator.threads auto
ports
  network.feed             tcp://127.0.0.1:*: free
  network.announcements    ipc://HERE/a: free
  network.evaluation_feed  ipc://HERE/e: free
END_PRINTED
fingerprints=$(jq -rs 'map(.fingerprint) | join(",")' one/corpus.json two/corpus.json)
says out "plm-trainer -c .* --fingerprint $fingerprints\$"
! grep -E 'plm-(packer|evaluator) .*--fingerprint' out || fail "another stage gets the fingerprints"

# ---- corpora that do not fit ----
refuses() { # refuses CODE MESSAGE OPTION...
  expect "$1" "$pipeline" up --dry-run "${@:3}"
  [ "$(head -n 1 err)" = "plm-pipeline: $2" ] || fail "it says $(cat err)"
}
refuses 2 "corpus: $PLM_TMP/three does not exist" --set corpus=three
says err "make it with .plm-pipeline ingest FASTA... --corpus $PLM_TMP/three"
refuses 2 "data.tokenizer differs from the tokenizer of the corpus $PLM_TMP/one" --set corpus=one --set data.tokenizer=byte
cp -r one again
sed -i 's|path: two|path: again|' mixed.yaml
refuses 2 "corpus: source 1 ($PLM_TMP/again) holds the same documents as source 0 ($PLM_TMP/one)" mixed.yaml

# ---- the same from `validate`, which reads only what there is ----
cat >sources.yaml <<'Y'
corpus:
  - {path: one}
  - {path: two}
  - {path: again}
  - {path: three}
  - {path: broken}
  - {path: two}
data: {tokenizer: byte}
Y
mkdir broken
echo '{' >broken/corpus.json
expect 2 "$pipeline" validate sources.yaml
sed "s|$PLM_TMP|HERE|g; s|\(broken: \).*|\1...|" err >problems
diff problems - <<'END_PROBLEMS' || fail "the problems of the sources differ"
sources.yaml:2:5: corpus: source 0, HERE/one, was made for the tokenizer esm, but data.tokenizer is byte; all sources need the same one
sources.yaml:3:5: corpus: source 1, HERE/two, was made for the tokenizer esm, but data.tokenizer is byte; all sources need the same one
sources.yaml:4:5: corpus: source 2, HERE/again, was made for the tokenizer esm, but data.tokenizer is byte; all sources need the same one
sources.yaml:4:5: corpus: source 2, HERE/again, holds the same documents as source 0, HERE/one
sources.yaml:6:5: corpus: source 4: HERE/broken: ...
sources.yaml:7:5: corpus: source 5 is the same corpus as source 1, HERE/two
sources.yaml:7:5: corpus: source 5, HERE/two, was made for the tokenizer esm, but data.tokenizer is byte; all sources need the same one
END_PROBLEMS

# ---- --resume with something else than a checkpoint of the run ----
refuses 2 "--resume needs auto, never or a checkpoint folder, not nothing" mixed.yaml --set 'corpus=one' --resume nothing
