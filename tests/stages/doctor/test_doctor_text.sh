#!/usr/bin/env bash
# What `doctor` finds out from the trainer's answer, word for word. The trainer is a script that prints $ANSWER.
# tests/stages/commands/test_doctor.sh runs it with the real programs.
. "$PLM_ROOT/tests/support/shell/lib.sh"
unset PLM_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA PLM_MPI_LIBRARY
mkdir bin
cp "$PLM_BIN/plm-pipeline" bin/
printf '#!/bin/sh\n[ -z "$SAYS" ] || printf "%%b" "$SAYS" >&2\n[ -z "$ANSWER" ] || printf "%%s\\n" "$ANSWER"\n' >bin/plm-trainer
cp bin/plm-trainer bin/plm-packer
cp bin/plm-trainer bin/plm-evaluator
chmod +x bin/*
export ANSWER='' SAYS=''
cat >p.yaml <<'Y'
corpus: null
run: run
network: {feed: 'ipc://f', evaluation_feed: 'ipc://e', announcements: 'ipc://a'}
trainer: {steps: 1000, ema: 0.9, checkpoint: {every: 100, keep_last: 2, keep_best: 1, max_unevaluated: 4}}
Y

# finds CHECKS [OPTION...]: the findings of these checks (a regular expression) are standard input
finds() {
  local checks=$1 code=0
  shift
  bin/plm-pipeline doctor p.yaml --json "$@" >out 2>err </dev/null || code=$?
  [ "$code" -eq "$(jq 'if any(.[]; .grade == "problem") then 1 else 0 end' out)" ] || fail "it ends with $code: $(cat out err)"
  jq -r --arg checks "^($checks)\$" '.[] | select(.check | test($checks)) |
    "\(.check) \(.grade): \(.found)" + if .fix then " -> \(.fix)" else "" end' out |
    sed -E "s|$PLM_TMP|HERE|g; s/, with [0-9]+ cores/, with N cores/; s/and [0-9.]+ GB are free at/and N GB are free at/
      s/plm-pipeline [0-9][^ ,]*/plm-pipeline V/" >found
  diff found - || fail "doctor $* finds something else about $checks"
}

ANSWER='{"device":"cpu","level":"avx2","precision":"bf16","products":"oneDNN 3.1","bf16_gain":"bf16 gains that much","int8_gain":"int8 gains this much","total":1234567890,"free_bytes":2500000000,"fits":true,"parameter_count":2500000}' \
  finds 'programs|device|precision|inference|oneDNN|memory|disk|ranks|ports' <<'END_FOUND'
programs ok: plm-pipeline V, with its stages in HERE/bin
device ok: the trainer computes on the CPU (avx2) in bf16, with N cores
precision ok: bf16 gains that much
inference ok: int8 gains this much
oneDNN ok: oneDNN 3.1
memory ok: the trainer takes 1.23 GB, and 2.50 GB are free
disk ok: checkpoints take at most 0.32 GB, and N GB are free at HERE/run
ports ok: all 3 are free
END_FOUND
ANSWER='{"device":"cpu","level":"portable","precision":"fp32","products":"cblas","total":1234567890,"free_bytes":1,"fits":false,"largest_micro_batch_tokens":512}' \
  finds 'device|precision|oneDNN|memory' <<'END_FOUND'
device warning: the trainer computes on the CPU (portable) in fp32, with N cores -> this processor has no AVX2: training works, but use a newer one
oneDNN warning: cblas, which has no bf16 instructions -> install libdnnl-dev, then `make clean` and `make`
memory problem: the trainer takes 1.23 GB, and 0.00 GB are free -> set trainer.micro_batch_tokens to 512, or trainer.recompute: block
END_FOUND
ANSWER='{"device":"NVIDIA X","precision":"bf16","level":"portable","total":1,"free_bytes":1000000000,"fits":false,"largest_micro_batch_tokens":0}' \
  finds 'device|oneDNN|memory' <<'END_FOUND'
device ok: the trainer computes on NVIDIA X in bf16
memory problem: the trainer takes 0.00 GB, and 1.00 GB are free -> use a smaller model, or a machine with more memory
END_FOUND
PLM_CPU_ISA=portable DNNL_MAX_CPU_ISA=SSE41 ANSWER='{"level":"portable","precision":"fp32","products":"oneDNN 3.1","total":5}' \
  finds 'device|oneDNN|memory' <<'END_FOUND'
device warning: the trainer computes on the CPU (portable) in fp32, with N cores -> PLM_CPU_ISA=portable chooses these instructions: unset it
oneDNN warning: oneDNN 3.1; DNNL_MAX_CPU_ISA=SSE41 is set -> unset DNNL_MAX_CPU_ISA, so that oneDNN uses all instructions of the processor
END_FOUND
PLM_CPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=SSE41 ANSWER='{"level":"avx2","precision":"fp32","products":"oneDNN 3.1"}' \
  finds 'device|oneDNN' <<'END_FOUND'
device warning: the trainer computes on the CPU (avx2) in fp32, with N cores -> PLM_CPU_ISA=avx2 chooses these instructions: unset it
oneDNN warning: oneDNN 3.1; ONEDNN_MAX_CPU_ISA=AVX2 is set -> unset ONEDNN_MAX_CPU_ISA, so that oneDNN uses all instructions of the processor
END_FOUND
PLM_CPU_ISA='' DNNL_MAX_CPU_ISA='' ANSWER='{"level":"avx2","precision":"fp32","products":"oneDNN 3.1"}' finds 'device|oneDNN' <<'END_FOUND'
device ok: the trainer computes on the CPU (avx2) in fp32, with N cores
oneDNN ok: oneDNN 3.1
END_FOUND
SAYS='one\ntwo\n\n' finds 'device|memory|disk' <<'END_FOUND'
device problem: plm-trainer cannot estimate this run: one two -> `plm-trainer --dry-run` says more
END_FOUND
ANSWER='{"parameter_count":1e15}' finds disk <<'END_FOUND'
disk problem: checkpoints take at most 128000000.00 GB, and N GB are free at HERE/run -> free some space, lower trainer.checkpoint.keep_last and max_unevaluated, or put `run` on another disk
END_FOUND

# ---- several ranks: mpirun, the engine and the name of this host ----
printf '#!/bin/sh\necho "mpirun (Open MPI) 4.1.4"\n' >bin/mpirun
chmod +x bin/mpirun
: >engine.so
PATH=$PLM_TMP/bin:$PATH PLM_MPI_LIBRARY=$PLM_TMP/engine.so finds ranks --set trainer.ranks=2 <<'END_FOUND'
ranks ok: Open MPI and its engine are here, for 2 ranks
END_FOUND
PATH=$PLM_TMP/bin:$PATH PLM_MPI_LIBRARY=$PLM_TMP/none.so finds ranks --set trainer.ranks=2 <<'END_FOUND'
ranks problem: this build has no MPI, which trainer.ranks above 1 needs: HERE/none.so does not exist -> install mpi.h (Debian: libopenmpi-dev) and run `make` again
END_FOUND

# ---- programs ----
rm bin/plm-packer
chmod -x bin/plm-evaluator
finds programs <<'END_FOUND'
programs problem: HERE/bin/plm-packer is missing or not executable -> build it with `make`, and keep the four programs in one folder
programs problem: HERE/bin/plm-evaluator is missing or not executable -> build it with `make`, and keep the four programs in one folder
END_FOUND

# ---- limits ----
ulimit -n 1024
finds limits <<'END_FOUND'
limits ok: files, processes, address space and file sizes suffice
END_FOUND
(ulimit -n 1023 && finds limits) <<'END_FOUND' || exit 1
limits warning: a process may open only 1023 files -> raise the hard limit: nofile in /etc/security/limits.conf, or LimitNOFILE= of the service
END_FOUND
(ulimit -f 3000000 && finds limits) <<'END_FOUND' || exit 1
limits warning: a file may have only 3.072 GB -> ulimit -f unlimited
END_FOUND
