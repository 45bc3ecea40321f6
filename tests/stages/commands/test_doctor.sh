#!/usr/bin/env bash
# `plm-pipeline doctor`: a sound host gets no problem; everything that can be broken in a test is found,
# with its fix; nothing is left behind.
. "$PLM_ROOT/tests/support/shell/lib.sh"
unset PLM_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA
export LC_ALL=C.UTF-8 TMPDIR=$PLM_TMP/tmp
mkdir tmp
small_corpus corpus
small_config p.yaml transformer

# finds CHECK GRADE REGEX-FOUND REGEX-FIX: there is such a line in ./out, which --json printed
finds() {
  jq -e --arg check "$1" --arg grade "$2" --arg found "$3" --arg fix "$4" \
    'any(.[]; .check == $check and .grade == $grade and (.found | test($found)) and ((.fix // "") | test($fix)))' \
    out >/dev/null || fail "no $2 of $1 that says $3, with the fix $4: $(jq -c '.[]' out)"
}

# ---- nothing is wrong ------------------------------------------------------------------------------------
expect 0 plm-pipeline doctor p.yaml --run run --json
for check in programs driver device memory disk 'run folder' corpus 'control socket' ports limits 'host name' locale clock; do
  jq -e --arg check "$check" 'any(.[]; .check == $check)' out >/dev/null || fail "nothing about $check"
done
jq -e 'all(.[]; .grade != "problem")' out >/dev/null || fail "a problem: $(cat out)"
jq -e 'all(.[]; .grade == "ok" or (.fix | length > 0))' out >/dev/null || fail "a finding without its fix: $(cat out)"
finds corpus ok "^$PLM_TMP/corpus is on" '^$'
[ ! -e run ] || fail "doctor made the run folder"
expect 0 plm-pipeline doctor p.yaml --run run
says out '^ok +ports +all 3 are free$'
expect 0 plm-pipeline doctor p.yaml --run run --color always
says out $'^\033\\[32mok      \033\\[0mports            all 3 are free$'
expect 1 plm-pipeline doctor p.yaml --run run --set corpus=elsewhere --color always -q
says out $'^\033\\[31mproblem \033\\[0mcorpus           .*elsewhere'
says out '^ {25}fix: .*plm-pipeline ingest'
! matches '^.\[32m' <out || fail "-q prints what is in order: $(cat out)"
mkdir none && (cd none && expect 0 plm-pipeline doctor --json && ! grep -q '"corpus"' out) ||
  fail "without a configuration, the corpus is looked for"

# ---- files -------------------------------------------------------------------------------------------------
expect 1 plm-pipeline doctor p.yaml --run /proc/run --json
finds 'run folder' problem 'in /proc, no file can be made' 'run DIR'
expect 1 plm-pipeline doctor p.yaml --run run --set corpus=elsewhere --json
finds corpus problem elsewhere 'plm-pipeline ingest'
sed 's|^corpus:.*|corpus: [{path: corpus, weight: 1}, {path: elsewhere, weight: 1}]|' p.yaml >list.yaml
expect 1 plm-pipeline doctor list.yaml --run run --json
finds corpus ok "^$PLM_TMP/corpus is on" '^$'
finds corpus problem elsewhere 'plm-pipeline ingest'
TMPDIR=$PLM_TMP/none/tmp expect 1 plm-pipeline doctor p.yaml --run run --json
finds 'temporary files' problem 'none/tmp' 'set TMPDIR'
if [ -d /dev/shm ] && [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && [ -w /dev/shm ]; then
  expect 0 plm-pipeline doctor p.yaml --run /dev/shm/no-such-run --json
  finds 'run folder' warning 'in memory' 'a folder on a disk'
fi

# ---- ports: the process that has one is named, and the fix works -------------------------------------------
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
print(s.getsockname()[1], flush=True); time.sleep(3600)' >port &
wait_for 10 test -s port
taken=tcp://127.0.0.1:$(cat port)
expect 1 plm-pipeline doctor p.yaml --run run --set "network.feed=$taken" --json
finds ports problem "network.feed: $taken is in use by pid $! " "--set 'network.feed=tcp://127.0.0.1:\\*'"
expect 0 plm-pipeline doctor p.yaml --run run --set 'network.feed=tcp://127.0.0.1:*' -q
grep -q ports out && fail "-q prints what is in order"
for host in plm-no-such-host.invalid 192.0.2.1; do # no name, and no address of this host
  expect 1 plm-pipeline doctor p.yaml --run run --set network.keys=keys --set "network.feed=tcp://$host:5701" --json
  finds ports problem "network.feed: tcp://$host:5701 cannot be bound: .*$host" 'use an address of this host: --set'
  expect 2 plm-pipeline up p.yaml --run run --set network.keys=keys --set "network.feed=tcp://$host:5701"
  says err "network.feed: tcp://$host:5701 cannot be bound: .*$host"
done

# ---- limits --------------------------------------------------------------------------------------------------
(ulimit -n 200 && expect 0 plm-pipeline doctor p.yaml --run run --json) || fail "few descriptors"
finds limits warning 'only 200 files' nofile
(ulimit -f 1000000 && expect 0 plm-pipeline doctor p.yaml --run run --json) || fail "a limit on the size of files"
finds limits warning 'a file may have only 1\.0' 'ulimit -f unlimited'

# ---- locale ----------------------------------------------------------------------------------------------------
LC_ALL=C expect 0 plm-pipeline doctor p.yaml --run run --json
finds locale warning ANSI_X3 'LC_ALL=C.UTF-8'
LC_ALL=xx_YY.UTF-8 expect 0 plm-pipeline doctor p.yaml --run run --json
finds locale warning 'not installed' 'LC_ALL=C.UTF-8'

# ---- what computes -----------------------------------------------------------------------------------------------
PLM_CPU_ISA=portable expect 0 plm-pipeline doctor p.yaml --run run --json --set trainer.device=cpu --set trainer.precision=fp32
finds device warning 'CPU \(portable\) in fp32' 'PLM_CPU_ISA=portable .* unset it'
expect 0 plm-pipeline doctor p.yaml --run run --json --set trainer.device=cpu
if grep -q '"oneDNN' out; then
  DNNL_MAX_CPU_ISA=SSE41 expect 0 plm-pipeline doctor p.yaml --run run --json --set trainer.device=cpu
  finds oneDNN warning 'DNNL_MAX_CPU_ISA=SSE41' 'unset DNNL_MAX_CPU_ISA'
fi
if [ ! -e /dev/nvidia0 ]; then
  expect 1 plm-pipeline doctor p.yaml --run run --set trainer.device=cuda --json
  jq -e 'any(.[]; .check == "driver" and .grade == "problem" and (.fix | length > 0))' out >/dev/null || fail "cuda without a GPU: $(cat out)"
fi
expect 1 plm-pipeline doctor p.yaml --run run --json --set trainer.device=cpu --set model.hidden_size=32768 \
  --set model.num_attention_heads=256 --set model.num_hidden_layers=200
finds memory problem 'the trainer takes [0-9.]+ GB' 'smaller model|micro_batch_tokens'
PATH=$PLM_BIN expect 1 plm-pipeline doctor p.yaml --run run --json --set trainer.ranks=2
finds ranks problem 'mpirun is not on PATH|cannot train with several ranks' 'install Open MPI'

# ---- programs ------------------------------------------------------------------------------------------------------
mkdir bin && cp "$PLM_BIN/plm-pipeline" "$PLM_BIN/plm-packer" bin/
expect 1 bin/plm-pipeline doctor p.yaml --run run --json
finds programs problem 'bin/plm-trainer is missing' make
finds programs problem 'bin/plm-evaluator is missing' make
finds device problem 'it gave no answer' 'plm-trainer --dry-run'

# ---- usage ---------------------------------------------------------------------------------------------------------
expect 2 plm-pipeline doctor p.yaml q.yaml
printf 'trainer: {stepz: 3}\n' >wrong.yaml
expect 2 plm-pipeline doctor wrong.yaml
says err 'unknown key "trainer.stepz"|unknown key "stepz"'
left=$(find . -name '.plm-doctor-*')
[ -z "$left" ] || fail "doctor left $left"
