#!/usr/bin/env bash
# `plm-pipeline join --fetch`: a host without a copy of the corpus fetches it from the head, through kills, damage and
# a full cache; the run ends with the bits of an undisturbed one.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 40000 # several parts of 1 MiB
small_fasta second.fasta 60
awk 'BEGIN {print "name,place"} /^>/ {print substr($1, 2) "," NR}' second.fasta >second.csv
plm-pipeline ingest second.fasta --labels-table second.csv --labels place --corpus second -q \
  --split train=0.8,valid=0.1,test=0.1
small_config pipeline.yaml transformer
steps=(--set trainer.steps=40 --set trainer.checkpoint.every=1000)
plm-pipeline up pipeline.yaml trainer packer --run alone "${steps[@]}" >alone.log 2>&1 </dev/null ||
  fail "the undisturbed run: $(tail -n 5 alone.log)"

plm-pipeline keys keys --client node7 >/dev/null 2>&1 || fail "no keys"
mkdir -m 700 node && cp keys/clients/node7.key keys/server.pub node/

# ---- the head, without packers ----
start_head() { # ARGUMENTS…
  plm-pipeline up pipeline.yaml trainer --run run --set network.keys=keys "$@" >up.log 2>&1 </dev/null &
  up=$!
  feed() { jq -er .feed run/endpoints.json; }
  wait_for 30 feed
  head=$(feed)
}
start_head "${steps[@]}"
cache=$PLM_TMP/home/plm-pipeline/corpora
export XDG_CACHE_HOME=$PLM_TMP/home
join() { plm-pipeline join "$head" --fetch --keys node "$@" </dev/null; }

# ---- a key that nobody admitted ----
plm-pipeline keys others --client intruder >/dev/null 2>&1 || fail "no keys"
mkdir -m 700 intruder && cp others/clients/intruder.key keys/server.pub intruder/
plm-pipeline join "$head" --fetch --keys intruder >intruder.log 2>&1 </dev/null &
intruder=$!
wait_for 30 grep -q 'refuses this host: the key is not on the consumer' intruder.log
kill "$intruder"
status=0
wait "$intruder" || status=$?
[ "$status" -eq 143 ] || fail "a stopped fetch ended with $status: $(cat intruder.log)"
[ -z "$(find "$cache" -name '*.mdb')" ] || fail "an intruder fetched the corpus"

# ---- the head has no copy ----
mv corpus moved
status=0
join >none.log 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "without a corpus at the head, join ended with $status: $(cat none.log)"
says none.log 'does not send the corpus: corpus is not a corpus|does not send the corpus: .*/corpus is not a corpus'
says none.log 'name it with --corpus'
mv moved corpus

# ---- killed in the middle, continued, damaged ----
stopping_at 'write:*.part/data.mdb#3' plm-pipeline join "$head" --fetch --keys node >killed.log 2>&1 </dev/null &
killed=$!
until_stopped "$killed" || fail "it ended before the third part: $(cat killed.log)"
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
part=$(echo "$cache"/*.part)
[ "$(stat -c %s "$part/data.mdb")" -eq $((2 << 20)) ] || fail "not two parts: $(ls -l "$part")"
cmp -s <(head -c $((2 << 20)) corpus/data.mdb) "$part/data.mdb" || fail "the part is not the beginning"
printf 'x' | dd of="$part/data.mdb" bs=1 seek=77 conv=notrunc status=none

# ---- the cache is full ----
whole=$(basename "$part" .part)
entry() { # HASH BYTES AGE: a corpus that was used AGE days ago
  mkdir -p "$cache/$1"
  truncate -s "$2" "$cache/$1/data.mdb"
  touch -d "-$3 days" "$cache/$1.lock"
}
a=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb c=cccccccccccccccccccccccccccccccc
entry $a 700M 3
entry $b 300M 2
entry $c 990M 1
flock --no-fork -s "$cache/$c.lock" sleep 1000 &
holder=$!
status=0
locked() { ! flock -n "$cache/$c.lock" true; }
wait_for 30 locked
join --cache-limit 1 >full.log 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "with a full cache, join ended with $status: $(cat full.log)"
says full.log 'may hold 1.00 GB; the corpus has 0.0[0-9] GB, and corpora that are in use have 1.04 GB'
says full.log 'raise --cache-limit'
[ ! -e "$cache/$a" ] && [ ! -e "$cache/$b" ] && [ -e "$cache/$c" ] || fail "not removed by use: $(ls "$cache")"
kill "$holder"
wait "$holder" 2>/dev/null || true

entry $a 700M 3
entry $b 300M 2
plm-pipeline join "$head" --fetch --cache-limit 2 --keys node --packers 2 >join.log 2>&1 </dev/null &
join_pid=$!
wait "$up" || fail "the run: $(tail -n 5 up.log)"
kill "$join_pid"
status=0
wait "$join_pid" || status=$?
[ "$status" -eq 143 ] || fail "join ended with $status: $(cat join.log)"
says join.log 'continuing after 2 MB of'
says join.log 'an interrupted fetch left is damaged; fetching all of it'
[ ! -e "$cache/$a" ] && [ -e "$cache/$b" ] || fail "more or less than needed was removed: $(ls "$cache")"
[ -z "$(find "$cache" -name '*.part')" ] || fail "a part is left: $(ls "$cache")"
for file in data.mdb corpus.json; do cmp -s corpus/$file "$cache/$whole/$file" || fail "$file differs"; done
cmp alone/checkpoints/latest/model.safetensors run/checkpoints/latest/model.safetensors ||
  fail "a fetched corpus gave other bits"

# ---- a mixture: all its corpora, and nothing is fetched twice ----
rm -r run
sed -i '/^corpus:/d' pipeline.yaml
printf 'corpus: [{path: corpus, weight: 3}, {path: second, weight: 1}]\n' >>pipeline.yaml
start_head "${steps[@]}"
plm-pipeline join "$head" --fetch --keys node >mixture.log 2>&1 </dev/null &
join_pid=$!
wait "$up" || fail "the run on a mixture: $(tail -n 5 up.log; cat mixture.log)"
kill "$join_pid"
wait "$join_pid" || true
[ "$(grep -c 'fetching the corpus' mixture.log)" -eq 1 ] || fail "not only the second was fetched: $(cat mixture.log)"
[ -n "$(find "$cache" -name data.mdb -exec cmp -s {} second/data.mdb \; -print)" ] || fail "no copy of the second"
nobody_left "$PLM_TMP"
