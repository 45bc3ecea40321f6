#!/usr/bin/env bash
# Every long-running command and every stage that a signal stops exits with 130 after SIGINT and 143
# after SIGTERM.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 2000
small_config pipeline.yaml transformer
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=2 --set trainer.schedule.cooldown_steps=0 --set trainer.schedule.warmup_steps=1
mkdir bin
printf '#!/bin/sh\nexec sleep 600\n' >bin/hf # what push calls, uploading for ever
chmod +x bin/hf
export PATH=$PWD/bin:$PATH
awk 'BEGIN { print "mutant"; for (i = 1; i <= 4000; i++) print "L" i "A" }' >variants.csv
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "L" }' >long.txt

# caught PID: the program has installed its handlers of SIGTERM and SIGINT, one after the other
caught() {
  local key value
  while read -r key value; do
    [ "$key" != SigCgt: ] || break
  done <"/proc/$1/status"
  [ $((0x$value & 0x4002)) -eq $((0x4002)) ]
}
any_moment() { :; }

# stop_early WHEN SIGNAL COMMAND…: lets the command run in short slices, and sends the signal as soon
# as WHEN is true of its process. The exit code goes to $code; stderr to ./err.
stop_early() {
  local when=$1 signal=$2 pid program
  shift 2
  env --default-signal=INT,TERM "$@" >out 2>err </dev/null &
  pid=$!
  while kill -STOP "$pid" 2>/dev/null; do # until it is over
    program=$(readlink "/proc/$pid/exe" || true)
    if [[ $program == */plm-* ]] && "$when" "$pid"; then break; fi
    kill -CONT "$pid" || true
  done
  kill "-$signal" "$pid" 2>/dev/null && kill -CONT "$pid"
  code=0
  wait "$pid" || code=$?
}

# stops WHEN WORDS COMMAND…: both signals, both codes, and WORDS on stderr. One that was complete
# before the signal came is tried again; a slow shell may miss it many times.
stops() {
  local when=$1 words=$2 pair attempt
  shift 2
  for pair in INT=130 TERM=143; do
    for attempt in {1..50}; do
      rm -rf made*
      stop_early "$when" "${pair%=*}" "$@"
      [ "$code" -eq 0 ] || break
    done
    [ "$code" -eq "${pair#*=}" ] ||
      fail "${pair%=*} ended with $code (attempt $attempt): $*: $(tail -n 5 err)"
    [ -z "$words" ] || says err "$words"
    [ ! -e made ] && [ ! -e made.npy ] || fail "${pair%=*} left a result: $*"
  done
}

checkpoint=run/checkpoints/latest
stopped='stopped by (Ctrl-C|SIGTERM)'
stops caught "$stopped; no corpus was written" plm-pipeline ingest corpus.fasta --corpus made
stops caught "$stopped" plm-pipeline embed --checkpoint $checkpoint corpus.fasta --output made.npy
stops caught "$stopped" plm-pipeline score --checkpoint $checkpoint --wild-type long.txt --all
stops caught "$stopped" plm-pipeline score --checkpoint $checkpoint --wild-type long.txt --csv variants.csv
stops caught "$stopped" plm-pipeline generate --checkpoint $checkpoint --count 100000 --length 50 --output made
stops caught "$stopped" plm-pipeline evaluate --checkpoint $checkpoint --corpus corpus --split train
stops caught "$stopped; nothing was exported" plm-pipeline export --checkpoint $checkpoint --output made
stops caught "$stopped" plm-pipeline push me/model --checkpoint $checkpoint
stops caught '' plm-pipeline metrics -f
# These have nothing to tidy up, so the signal itself ends them.
stops any_moment '' plm-pipeline corpus corpus --verify
stops any_moment '' plm-pipeline corpus corpus --fasta
stops any_moment '' plm-pipeline checkpoints run --verify
stops any_moment '' plm-pipeline logs -f

# ---- commands that follow a run, then the run itself, then each stage ---------------------------------
ready() { [ -s "$1/trainer.jsonl" ]; }
for pair in INT=130 TERM=143; do
  rm -rf waits
  env --default-signal=INT,TERM plm-pipeline up pipeline.yaml --run waits --set trainer.steps=100000 \
    >up.out 2>up.err </dev/null &
  up=$!
  wait_for 60 ready waits
  stop_early any_moment "${pair%=*}" plm-pipeline wait --run waits
  [ "$code" -eq "${pair#*=}" ] || fail "wait: ${pair%=*} ended with $code"
  stop_early any_moment "${pair%=*}" plm-pipeline logs -f --run waits
  [ "$code" -eq "${pair#*=}" ] || fail "logs -f: ${pair%=*} ended with $code"
  kill "-${pair%=*}" "$up"
  code=0
  wait "$up" || code=$?
  [ "$code" -eq "${pair#*=}" ] || fail "up: ${pair%=*} ended with $code: $(tail -n 5 up.err)"
done

for pair in INT=130 TERM=143; do
  for stage in trainer evaluator packer; do
    rm -rf alone
    mkdir alone
    stop_early caught "${pair%=*}" "plm-$stage" -c pipeline.yaml --run alone
    [ "$code" -eq "${pair#*=}" ] || fail "plm-$stage: ${pair%=*} ended with $code: $(tail -n 5 err)"
  done
done
