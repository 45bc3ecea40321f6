#!/usr/bin/env bash
# `plm-pipeline embed` at the command line: what it prints and refuses, that every kind of input gives the
# same bytes, and runs that are killed, stopped or write the same file.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml patch_unet
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=4
checkpoint=run/checkpoints/latest
embed() { plm-pipeline embed --checkpoint "$checkpoint" --threads 1 --batch-tokens 256 "$@"; }
embed_fails() { # EXIT REGEX ARGUMENTS…
  local code=$1 regex=$2
  shift 2
  expect "$code" embed "$@"
  says err "$regex"
}
# traces FILE: what lies beside it, one name per line
traces() { find . -maxdepth 1 -name "$1.*" ! -name '*.names.json' -printf '%f\n'; }
nothing_left() { # FILE: neither it nor a trace of it exists
  [ ! -e "$1" ] || fail "$1 exists"
  [ -z "$(traces "$1")" ] || fail "left behind: $(traces "$1")"
}
finished() { # FILE: it exists, and nothing lies beside it
  [ -e "$1" ] || fail "$1 does not exist"
  [ -z "$(traces "$1")" ] || fail "left behind: $(traces "$1")"
}

# ---- what it accepts and prints -----------------------------------------------------------------------
small_fasta s.fasta 60 3
expect 0 embed s.fasta --output plain.safetensors
says out '^sequences    60, [0-9,]+ tokens$'
says out '^output       plain.safetensors: 60 x 64 \(mean\), 1[0-9].[0-9] kB$'
says out '^padding      [0-9.]+ %$'
! grep -vE '^plm-evaluator embed: embed +[0-9]+ % ' err || fail "a run without problems printed more than its progress"
finished plain.safetensors

gzip -k s.fasta
zstd -q s.fasta
expect 0 embed s.fasta.gz --output gz.safetensors
expect 0 embed s.fasta.zst --output zst.safetensors
embed - --output pipe.safetensors <s.fasta >out 2>err || fail "from a pipe: $(cat err)"
awk '/^>/ {name = substr($1, 2); next} {print "{\"name\":\"" name "\",\"sequence\":\"" tolower($0) "\"}"}' \
  s.fasta >s.jsonl
expect 0 embed s.jsonl --output jsonl.safetensors
awk 'BEGIN {print "Protein\tEntry"} /^>/ {name = substr($1, 2); next} {print $0 "\t" name}' s.fasta >s.table
expect 0 embed s.table --sequence-column Protein --output table.safetensors
head -n 60 s.fasta >first.fa
tail -n +61 s.fasta >second.fa
expect 0 embed first.fa second.fa --output two.safetensors
for how in gz zst pipe jsonl table two; do
  cmp plain.safetensors $how.safetensors || fail "$how gives other bytes"
done
expect 0 plm-pipeline embed --checkpoint "$checkpoint" --batch-tokens 256 s.fasta --output threads.safetensors
cmp plain.safetensors threads.safetensors || fail "the number of threads changes bytes"

expect 0 embed s.fasta --output plain.npy -q
[ ! -s out ] && [ ! -s err ] || fail "-q prints: $(cat out err)"
expect 0 embed s.fasta --output plain.npy --pooling max,std --json -q
jq -e '.sequences == 60 and .width == 128 and .pooling == "max,std" and .kind == "pooled"
       and .bad_records == 0 and .tokens > 60 * 22 and .padding_fraction < 0.5' out >/dev/null ||
  fail "the summary: $(cat out)"
jq -e 'length == 60 and .[59] == "seq59"' plain.npy.names.json >/dev/null || fail "names of plain.npy"
[ "$(stat -c %s plain.npy)" -eq $((128 + 60 * 128 * 4)) ] || fail "size of plain.npy"

# ---- records that are bad, long, unknown, repeated -------------------------------------------------
long=$(printf 'LAGVSERT%.0s' $(seq 40)) # 320 residues
printf '>a\nLAGV\n>a\nLAGV\n>bad\nL1G\n>b\nLJG\n>long\n%s\n>empty\n>huge\n%s%s\n' \
  "$long" "$long" "$long" >mixed.fasta
expect 0 embed mixed.fasta --output mixed.safetensors --per-token --json
says err 'warning: mixed.fasta:6: record "bad": character .1. is not a residue: skipped'
says err 'warning: mixed.fasta:[0-9]+: record "empty": empty sequence: skipped'
says err 'warning: bad records skipped: 2'
says err "max_length of 256 tokens, cut to their first 256: 2"
says err 'taken as <unk>: 1, in 1 sequence$'
[ "$(grep -c 'cut to' err)" -eq 1 ] || fail "more than one warning about long sequences"
jq -e '.sequences == 5 and .bad_records == 2 and .cut == 2 and .unknown_residues == 1
       and .tokens == 6 + 6 + 5 + 256 + 256' out >/dev/null || fail "the summary: $(cat out)"
embed_fails 1 'mixed.fasta:6: record "bad"' mixed.fasta --output strict.safetensors --strict
says err 'leave out --strict'
nothing_left strict.safetensors

# ---- other lengths than the model's ------------------------------------------------------------------
expect 0 embed mixed.fasta --output mixed.safetensors --per-token --json --max-length 100
says err 'longer than the max_length of 100 tokens, cut to their first 100: 2$'
! grep -q 'trained with' err || fail "a warning about sequences that were cut: $(cat err)"
jq -e '.cut == 2 and .tokens == 6 + 6 + 5 + 100 + 100' out >/dev/null || fail "the summary: $(cat out)"
expect 0 embed mixed.fasta --output mixed.safetensors --per-token --json --max-length 1000
says err 'warning: a sequence of 642 tokens is longer than those that the model was trained with, which have at most 256$'
jq -e '.cut == 0 and .tokens == 6 + 6 + 5 + 322 + 642' out >/dev/null || fail "the summary: $(cat out)"
embed_fails 2 '\-\-max-length 2000000: this model takes sequences of 3 to 1048576 tokens' mixed.fasta --output x.npy \
  --max-length 2000000
embed_fails 2 '\-\-max-length 2: this model takes sequences of 3 to' mixed.fasta --output x.npy --max-length 2
embed_fails 2 '\-\-max-length 0 is not a number of tokens' mixed.fasta --output x.npy --max-length 0

# ---- attention maps ----------------------------------------------------------------------------------
expect 0 embed s.fasta --output maps.safetensors --attention 1 --json -q
jq -e '.kind == "attention" and .attention == "1" and (has("width") | not)' out >/dev/null || fail "the summary: $(cat out)"
expect 0 embed s.fasta --output maps.safetensors --attention 1:2,1
says out '^output       maps.safetensors: attention maps, [0-9]+ for each sequence, [0-9.]+ [kM]B$'
expect 0 plm-pipeline embed --checkpoint "$checkpoint" --batch-tokens 256 s.fasta --output threads.safetensors \
  --attention 1:2,1
cmp maps.safetensors threads.safetensors || fail "the number of threads changes maps"
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --attention 1 --per-token
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --attention 1 --layers 1
embed_fails 2 'an npy file holds one array' s.fasta --output x.npy --attention 1
embed_fails 2 'the model has no layer 99' s.fasta --output x.safetensors --attention 99
embed_fails 1 'has no contact head' s.fasta --output x.safetensors --contacts
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --contacts --attention 1
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --contacts --layers 1
embed_fails 2 'has no token for a break of chains' s.fasta --output x.safetensors --separate-chains
nothing_left x.safetensors

# ---- mistakes ---------------------------------------------------------------------------------------
: >empty.fasta
printf '>a\n1\n' >bad.fasta
expect 2 plm-pipeline embed s.fasta --output x.npy && says err '\-\-checkpoint DIR is needed'
cp s.fasta s.safetensors
expect 2 embed s.safetensors --output s.safetensors && says err '\-\-output s.safetensors is also the input'
cmp s.fasta s.safetensors || fail "the input was changed"
rm s.safetensors
embed_fails 2 '\-\-output FILE is needed' s.fasta
embed_fails 2 'no sequences are named: give a file' --output x.npy
embed_fails 2 '\-\-pooling "median" is not one of mean, cls, max and std' s.fasta --output x.npy --pooling median
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --logits --per-token
embed_fails 2 'exclude each other' s.fasta --output x.safetensors --logits --pooling max
embed_fails 2 'the name does not say which format to write' s.fasta --output x.pt
says err '.safetensors'
embed_fails 2 'an npy file holds one array' s.fasta --output x.npy --logits
embed_fails 2 '\-\-resume must be auto or never' s.fasta --output x.npy --resume maybe
embed_fails 2 '\-\-batch-tokens' s.fasta --output x.npy --batch-tokens 0
embed_fails 2 '\-\-precision must be fp32, bf16 or int8' s.fasta --output x.npy --precision int4
embed_fails 2 'the CUDA backend has no int8 products' s.fasta --output x.npy --precision int8 --device cuda
says err '\-\-precision bf16'
embed_fails 1 'missing.fasta' missing.fasta --output x.npy
embed_fails 1 'empty.fasta is empty' empty.fasta --output x.npy
embed_fails 1 'bad.fasta has no good record, 1 bad' bad.fasta --output x.npy
embed_fails 1 'cannot write into folder nowhere' s.fasta --output nowhere/x.npy
mkdir folder.npy
embed_fails 1 'folder.npy exists and is not a file' s.fasta --output folder.npy
expect 1 plm-pipeline embed --checkpoint nowhere s.fasta --output x.npy
says err 'nowhere'
nothing_left x.npy
cp -r run/checkpoints/latest/ damaged
printf '\1' | dd of=damaged/model.safetensors bs=1 seek=9000 conv=notrunc status=none
expect 1 plm-pipeline embed --checkpoint damaged s.fasta --output x.npy
says err 'damaged'
nothing_left x.npy

# ---- killed at several moments ----------------------------------------------------------------------
small_fasta many.fasta 100 5
done_sequences() { jq -r .sequences "$1.journal" 2>/dev/null || echo 0; }
advanced() { [ "$(done_sequences "$1")" -gt "$2" ]; }

# start_until CALL:PATTERN#N FILE ARGUMENTS…: in the background until it stops itself before that call;
# its process is in $pid. It saves after each batch.
start_until() {
  local where=$1 file=$2
  shift 2
  PLM_STOP_TICK=1 stopping_at "$where" plm-evaluator embed --checkpoint "$checkpoint" --threads 1 \
    --batch-tokens 256 many.fasta --output "$file" "$@" >out 2>err &
  pid=$!
  until_stopped "$pid" || fail "$file: it never came to $where: $(cat err)"
}
killed() {
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
}

for case in "pooled.npy --pooling mean,cls,max,std" "tokens.safetensors --per-token" \
  "logits.safetensors --logits" "maps.safetensors --attention 1:1,1:2"; do
  read -r file options <<<"$case"
  # shellcheck disable=SC2086
  expect 0 embed many.fasta --output "whole-$file" $options
  before=0
  for _ in 1 2 3; do
    # shellcheck disable=SC2086
    start_until "pwrite:*/$file.partial#20" "$file" $options
    killed
    advanced "$file" "$before" || fail "$file: nothing was saved after $before sequences"
    before=$(done_sequences "$file")
    [ -e "$file.partial" ] || fail "a killed run left no $file.partial"
  done
  # shellcheck disable=SC2086
  expect 0 embed many.fasta --output "$file" $options --json
  says err "continuing after $before of 100 sequences"
  jq -e ".resumed_sequences == $before" out >/dev/null || fail "$file: $(cat out) after $before"
  cmp "$file" "whole-$file" || fail "$file: a killed run ended with other bytes"
  finished "$file"
done

# killed before anything was saved: the next run begins again
for where in 'pwrite:*/early.npy.partial#1' 'rename:*early.npy.journal#1' 'pwrite:*/early.npy.partial#2'; do
  start_until "$where" early.npy
  killed
  [ "$(done_sequences early.npy)" -eq 0 ] || fail "something was saved before $where"
done
expect 0 embed many.fasta --output early.npy
expect 0 embed many.fasta --output whole-early.npy
cmp early.npy whole-early.npy || fail "a run killed early ended with other bytes"

# ---- stopped, refused, and two writers of one file ----------------------------------------------------------
for signal in INT=130 TERM=143; do
  rm -f stop.npy
  start_until 'pwrite:*/stop.npy.partial#20' stop.npy
  before=$(done_sequences stop.npy)
  embed_fails 1 'another process is writing stop.npy.partial' many.fasta --output stop.npy
  kill "-${signal%=*}" "$pid"
  kill -CONT "$pid"
  code=0
  wait "$pid" || code=$?
  [ $code -eq "${signal#*=}" ] || fail "$signal ended with $code: $(cat err)"
  says err "stopped by .* after [0-9,]+ of 100 sequences"
  says err 'the same command continues from there'
  advanced stop.npy $((before - 1)) || fail "the stop was not saved"
  embed_fails 1 'stop.npy.partial: it was begun with other sequences' s.fasta --output stop.npy
  embed_fails 1 'begun as "pooled mean fp32 npy' many.fasta --output stop.npy --pooling cls
  says err '\-\-resume never'
  embed_fails 1 'begun as "pooled mean fp32 npy' many.fasta --output stop.npy --precision int8
  embed_fails 1 'begun with another checkpoint' many.fasta --output stop.npy \
    --checkpoint run/checkpoints/step_00000000
  expect 0 embed many.fasta --output stop.npy
  says err 'continuing after'
  cmp stop.npy whole-early.npy || fail "a stopped run ended with other bytes"
done

# an old result stays until the new one is complete; --resume never begins again
cp plain.npy old.npy
start_until 'pwrite:*/old.npy.partial#20' old.npy
killed
advanced old.npy 0 || fail "old.npy: nothing was saved"
cmp old.npy plain.npy || fail "the old result was changed"
expect 0 embed s.fasta --output old.npy --resume never --pooling max,std
cmp old.npy plain.npy || fail "--resume never gives other bytes"
finished old.npy

# ---- a full disk ------------------------------------------------------------------------------------
# in a separate mount namespace
# shellcheck disable=SC2016 # expanded in there
full='mount -t tmpfs -o size=$1 none full && shift && "$@" >out 2>err; code=$?; ls -A full >left; exit $code'
mkdir full
if unshare -rm mount -t tmpfs none full 2>/dev/null; then
  small_fasta large.fasta 800 5
  for size in 64k 500k; do # full while reading, and full when the result is allocated
    code=0
    unshare -rm bash -c "$full" bash $size "$PLM_BIN/plm-pipeline" embed --checkpoint "$checkpoint" \
      --threads 1 large.fasta --per-token --output full/x.safetensors || code=$?
    [ $code -eq 1 ] || fail "a full disk ended with $code: $(cat err)"
    says err 'No space left on device'
    [ ! -s left ] || fail "a full disk left $(cat left)"
  done
  says err 'the result needs [0-9.]+ MB; nothing was written'
else
  echo "no mount namespaces here: the full disk was not tried"
fi
echo "all checks hold"
