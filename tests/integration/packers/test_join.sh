#!/usr/bin/env bash
# `plm-pipeline join` serves a run with packers that have only an address, a key and a copy of the corpus. `ps` on
# the head lists them. They are drained, killed and started again, and the run ends with the bits of an undisturbed one.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
steps=(--set trainer.steps=60 --set trainer.checkpoint.every=1000)

# ---- undisturbed ----
plm-pipeline up pipeline.yaml trainer packer --run alone "${steps[@]}" >alone.log 2>&1 </dev/null ||
  fail "the undisturbed run: $(tail -n 5 alone.log)"

# ---- mistakes are found before a packer starts ----
plm-pipeline keys keys --client node7 >/dev/null 2>&1 || fail "no keys"
mkdir -m 700 node && cp keys/clients/node7.key keys/server.pub node/
cp -r corpus copy,one # a folder of this name is one corpus, not two
join=(plm-pipeline join)
cat >node.yaml <<'Y'
version: 1
run: node-run
corpus: copy,one
network: {keys: node}
Y
expect 2 "${join[@]}" tcp://127.0.0.1:5701 -c node.yaml --keys none
says err 'none'
expect 2 "${join[@]}" tcp://127.0.0.1:5701 -c no.yaml
expect 2 "${join[@]}" tcp://127.0.0.1:5701 --corpus copy,one --keys none
says err 'none'
[ ! -e runs ] || fail "a refused join left $(find runs)"

# ---- the head, without packers ----
# It waits before it writes the first step down, so that it cannot end before everything has happened.
PLM_STOP_UNTIL=$PWD/go-on stopping_at 'write:*/trainer.jsonl#1' plm-pipeline up pipeline.yaml trainer --run run \
  "${steps[@]}" --set network.keys=keys >up.log 2>&1 </dev/null &
up=$!
feed() { jq -er .feed run/endpoints.json; }
wait_for 30 feed
head=$(feed)
here=runs/join-127.0.0.1-${head##*:}
joined() { plm-pipeline ps --run run --json | jq -e "map(select(.state == \"joined\" and .ready and .node == \"$(uname -n)\")) | length == $1"; }
start_join() { # PACKERS
  plm-pipeline join "$head" --corpus copy,one --keys node --packers "$1" >>join.log 2>&1 </dev/null &
  join_pid=$!
}

trainer=$(plm-pipeline ps --run run --json | jq '.[] | select(.stage == "trainer").pid')
start_join 2
wait_for 30 joined 2
# the packers outlast a trainer that answers nothing
suspend "$trainer"
# a packer that is killed is started again
victim=$(plm-pipeline ps --run "$here" --json | jq '[.[] | select(.stage == "packer")][0].pid')
kill -KILL "$victim"
again() { plm-pipeline ps --run "$here" --json | jq -e 'any(.[]; .restarts == 1 and .state == "ready")'; }
wait_for 30 again
expect 0 plm-pipeline scale packer=1 --run "$here"
expect 0 plm-pipeline down --run "$here"
status=0
wait "$join_pid" || status=$?
[ "$status" -eq 143 ] || fail "join ended with $status: $(cat join.log)"
# in the background
expect 0 plm-pipeline join "$head" --corpus copy,one --keys node -d
says err "^plm-pipeline: running in $here \(process [0-9]+\)$"
process=$(sed -n 's/.*(process \([0-9]*\)).*/\1/p' err)
[ "$(ps -o sid= -p "$process")" -eq "$process" ] || fail "join -d has no session of its own"
behind() { plm-pipeline ps --run "$here" --json | jq -e 'length == 1 and .[0].state == "ready"'; }
wait_for 30 behind
expect 1 plm-pipeline join "$head" --corpus copy,one --keys node -d # the error is that of the child
says err 'process '"$process"
expect 0 plm-pipeline down --run "$here"
gone() { [[ $(ps -o stat= -p "$process") =~ ^Z?[a-z+]*$ ]]; }
wait_for 30 gone
fingerprint=$(plm-pipeline corpus copy,one --json | jq -er .fingerprint)
grep -q "corpus copy,one: 400 sequences, fingerprint $fingerprint$" "$here"/logs/packer.0.log ||
  fail "the packer does not name its corpus: $(head "$here"/logs/packer.0.log)"
grep -q "serving $head" "$here"/logs/packer.0.log || fail "the packer's log has nothing"
# killed outright, with all its packers
start_join 1
one() { plm-pipeline ps --run "$here" --json | jq -e 'any(.[]; .state == "ready")'; }
wait_for 30 one
kill -KILL "$join_pid"
wait "$join_pid" 2>/dev/null || true
kill -CONT "$trainer"
# with corpus and keys from a configuration; nobody answers at the first address
plm-pipeline join "tcp://127.0.0.1:1,$head" -c node.yaml --prometheus 127.0.0.1:0 --run by-file >>join.log 2>&1 </dev/null &
join_pid=$!
touch go-on
wait "$up" || fail "the run: $(tail -n 5 up.log)"
kill "$join_pid"
status=0
wait "$join_pid" || status=$?
[ "$status" -eq 143 ] || fail "join ended with $status: $(cat join.log)"
says by-file/logs/packer.0.log "serving $head"
says by-file/logs/packer.0.log 'metrics at http://127.0.0.1:'
[ ! -e node-run ] || fail "join -c made the folder of the run"

cmp alone/checkpoints/latest/model.safetensors run/checkpoints/latest/model.safetensors ||
  fail "other packers gave other bits"
cmp <(exact_metrics alone/trainer.jsonl) <(exact_metrics run/trainer.jsonl) || fail "the metrics differ"
nobody_left "$PLM_TMP"
