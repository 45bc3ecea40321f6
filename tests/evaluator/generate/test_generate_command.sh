#!/usr/bin/env bash
# `plm-pipeline generate` at the command line: its input and output, and every way to use it wrongly.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 120
small_config masked.yaml unet
small_config causal.yaml transformer
plm-pipeline up masked.yaml --set trainer.steps=1 --set run=masked -q 2>up.log
plm-pipeline up causal.yaml --set trainer.steps=1 --set run=causal --set trainer.objective=causal \
  --set 'model.attention.pattern=[causal, causal+local]' -q 2>up.log
masked=masked/checkpoints/latest causal=causal/checkpoints/latest

generate() {
  plm-pipeline generate --output out.fasta "$@"
}

# wrong EXIT MESSAGE HINT ARGUMENTS…: generate fails with this code and message, and writes nothing
wrong() {
  local code=$1 what=$2 hint=$3
  shift 3
  rm -f out.fasta
  expect "$code" generate "$@"
  says err "$what"
  says err "$hint"
  [ ! -e out.fasta ] || fail "a wrong command wrote out.fasta"
  [ -z "$(find . -maxdepth 1 -name 'out.fasta.tmp-*')" ] || fail "a temporary file was left"
}

# ---- masked: residues stay, masks are filled, and a sequence without masks is copied
cat >in.fasta <<'END'
>first with a description
MKV<mask><mask>LLA_
GGJ
>second
lagvsert*
>third
__________
END
expect 0 generate --checkpoint $masked in.fasta --seed 5 --steps 3
says err '3 sequences, 13 residues generated'
[ "$(grep '^>' out.fasta | tr '\n' ' ')" = ">first >second >third " ] || fail "names: $(cat out.fasta)"
says out.fasta '^MKV[A-Y]{2}LLA[A-Y]GGJ$'
says out.fasta '^LAGVSERT$'
says out.fasta '^[A-Y]{10}$'
cp out.fasta once.fasta
expect 0 generate --checkpoint $masked in.fasta --seed 5 --steps 3
cmp out.fasta once.fasta || fail "the same seed gave other sequences"
expect 0 generate --checkpoint $masked in.fasta --seed 6 --steps 3
! cmp -s out.fasta once.fasta || fail "another seed gave the same sequences"

# compressed, JSON lines, standard input and output
zstd -q in.fasta
expect 0 generate --checkpoint $masked in.fasta.zst --seed 5 --steps 3
cmp out.fasta once.fasta || fail "compressed input gives other sequences"
plm-pipeline generate --checkpoint $masked - --output - --seed 5 --steps 3 -q <in.fasta >out.fasta
cmp out.fasta once.fasta || fail "standard streams give other sequences"
echo '{"name": "j", "sequence": "LA_V"}' >in.jsonl
expect 0 generate --checkpoint $masked in.jsonl --count 2
says out.fasta '^>j_2$'
says err '2 sequences, 2 residues generated'
printf 'seq,old\nLA_V,LAGV\n' >in.csv
expect 0 generate --checkpoint $masked in.csv --name-column old
says out.fasta '^>LAGV$'
expect 0 generate --checkpoint $masked in.jsonl
says err ' 1 sequence, 1 residue generated'
expect 0 generate --checkpoint $masked --length 12 --count 3 --json
[ "$(jq -c '[.sequences, .residues, .weights, .objective, .output]' out)" = '[3,36,"model","mlm","out.fasta"]' ] ||
  fail "summary: $(cat out)"
[ "$(grep -cE '^[A-Y]{12}$' out.fasta)" = 3 ] || fail "there are not three sequences of 12 residues: $(cat out.fasta)"
says out.fasta '^>sample_3$'

# ---- causal
printf '>p\nMKVL\n>q\nG\n' >prompts.fasta
expect 0 generate --checkpoint $causal prompts.fasta --count 2 --max-tokens 9 --temperature 0.8 --top-p 0.9
[ "$(grep '^>' out.fasta | tr '\n' ' ')" = ">p_1 >p_2 >q_1 >q_2 " ] || fail "names: $(cat out.fasta)"
[ "$(grep -cE '^MKVL[A-Y]{0,9}$' out.fasta)" = 2 ] || fail "prompts are not continued: $(cat out.fasta)"
expect 0 generate --checkpoint $causal --count 3 --seed 4
[ "$(grep -cE '^[A-Y]{0,255}$' out.fasta)" = 3 ] || fail "samples: $(cat out.fasta)"

# ---- mistakes
plain=plain.fasta
printf '>a\nLAGV\n' >$plain
printf '>a\nLA1GV\n' >bad.fasta
printf '>a\nL_%0254d\n' 0 | tr 0 A >long.fasta
printf '>a\nL_\n' >few.fasta
: >empty.fasta
wrong 2 '--checkpoint DIR is needed' 'runs/demo' in.fasta
expect 2 plm-pipeline generate --checkpoint $masked in.fasta
says err '--output FILE is needed'
wrong 1 'nowhere: there is no such folder' 'give a checkpoint' --checkpoint nowhere in.fasta
wrong 1 'no model' 'its newest checkpoint is' --checkpoint "$(dirname "$(dirname $masked)")" in.fasta
wrong 1 'missing.fasta' '.' --checkpoint $masked missing.fasta
wrong 2 'so it needs sequences' '--length N' --checkpoint $masked
wrong 1 'no sequence of plain.fasta has a mask' 'write <mask> or _' --checkpoint $masked $plain
wrong 1 'empty.fasta has no sequences' '.' --checkpoint $masked empty.fasta
wrong 1 'bad.fasta:2' "character '1'" --checkpoint $masked bad.fasta
wrong 1 '"a" has 256 residues; this model \(max_length 256\) takes up to 254' 'larger data.max_length' \
  --checkpoint $masked long.fasta
wrong 2 '--max-tokens does not apply to this checkpoint: its model is masked' 'leave it out' \
  --checkpoint $masked in.fasta --max-tokens 5
wrong 2 '--length applies only without IN' '.' --checkpoint $masked in.fasta --length 5
wrong 2 '--length 255: .* takes up to 254' 'shorten' --checkpoint $masked --length 255
wrong 2 '--steps does not apply to this checkpoint: its model is causal' '--max-tokens' --checkpoint $causal --steps 3
wrong 2 '--remask does not apply to this checkpoint: its model is causal' 'no masks' --checkpoint $causal --remask 0.1
wrong 2 '--remask 1 is not a number in' '.' --checkpoint $masked in.fasta --remask 1
wrong 2 '--length does not apply to this checkpoint' 'ends by itself' --checkpoint $causal --length 3
wrong 1 'prompt "a" has a mask' 'cannot fill masks' --checkpoint $causal few.fasta
wrong 1 'continues prompts of up to 254' 'shorten it' --checkpoint $causal long.fasta
wrong 2 '--temperature -1' '\[0, ' --checkpoint $masked in.fasta --temperature -1
wrong 2 '--top-p 0' '\(0, 1\]' --checkpoint $masked in.fasta --top-p 0
# ---- the trace: its tokens rebuild the output ----
for model in $masked $causal; do
  case $model in "$masked") options='--length 30 --steps 4' ;; *) options='--max-tokens 30' ;; esac
  # shellcheck disable=SC2086
  expect 0 generate --checkpoint $model $options --count 3 --seed 5 --trace trace.jsonl
  [ "$(grep -v '>' out.fasta | tr -d '\n')" = "$(jq -rs '
    sort_by(.sequence, .position) | map(.residue // "") | add' trace.jsonl)" ] ||
    fail "the trace of $model is not its output: $(head -n 3 trace.jsonl)"
  case $model in
    "$masked") jq -se 'length == 90 and (map(.step) | unique) == [0, 1, 2, 3]' trace.jsonl ;;
    *) jq -se 'all(.step == .position - 1)' trace.jsonl ;;
  esac >/dev/null || fail "wrong steps: $(cat trace.jsonl)"
done
wrong 2 '--trace and --output both name' 'two files' --checkpoint $masked in.fasta --trace out.fasta
wrong 2 '--top-k 0' 'is not between 1 and' --checkpoint $masked in.fasta --top-k 0
wrong 2 '--steps 0 is not between 1 and' '.' --checkpoint $masked in.fasta --steps 0
wrong 2 'option "--count" needs a whole number' '.' --checkpoint $masked in.fasta --count x
wrong 2 'in2' '.' --checkpoint $masked in.fasta in2.fasta
expect 2 plm-pipeline generate --checkpoint $masked in.fasta --output - --json
says err 'would both write to standard output'
for output in '--output -' --json; do
  # shellcheck disable=SC2086
  expect 2 plm-pipeline generate --checkpoint $masked --length 5 --output out.fasta --trace - $output
  says err "--trace - and ${output%% *} would both write to standard output: name a file"
done
expect 0 generate --checkpoint $masked --length 5 --trace -
[ "$(wc -l <out)" = 5 ] || fail "the trace has $(wc -l <out) lines on standard output"

# both sides of each bound
for bound in 'count 1073741824 1073741825' 'top-k 1073741824 1073741825' 'top-k 1 0' 'count 1 0' 'remask 0.99 0.991' \
  'temperature 1000000 1000001' 'temperature 0 -1' 'top-p 1 1.01' 'length 254 255'; do
  read -r option inside outside <<<"$bound"
  expect 2 generate --checkpoint $masked --length 5 --$option $outside
  says err "--$option $outside"
  [ $inside = 1073741824 ] && [ $option = count ] && continue # it would take too long
  expect 0 generate --checkpoint $masked --length 5 --steps 2 --$option $inside
  says err ' 1 sequence, [0-9]+ residues generated in [0-9.]+ s$'
done
expect 0 generate --checkpoint $masked --length 5 --steps 2 --temperature 0
cp out.fasta first.fasta
expect 0 generate --checkpoint $masked --length 5 --steps 2 --temperature 1 --top-k 1
cmp out.fasta first.fasta || fail "the most probable tokens differ: $(cat out.fasta first.fasta)"
cp in.fasta same.fasta
expect 2 plm-pipeline generate --checkpoint $masked same.fasta --output ./same.fasta
says err '--output ./same.fasta is the same file as the input same.fasta'
expect 2 plm-pipeline generate --checkpoint $masked same.fasta --output out.fasta --trace same.fasta
says err '--trace same.fasta is also the input'
cmp in.fasta same.fasta || fail "IN was changed"
expect 1 plm-pipeline generate --checkpoint $masked in.fasta --output missing/out.fasta
says err 'missing/out.fasta'

# when it is interrupted, it leaves nothing
plm-pipeline generate --checkpoint $causal --count 1000000 --output many.fasta -q 2>err &
interrupted=$!
there() { compgen -G 'many.fasta.tmp-*'; }
wait_for 30 there
kill -INT $interrupted
code=0
wait $interrupted || code=$?
[ "$code" -eq 130 ] || fail "exit $code instead of 130"
[ -z "$(compgen -G 'many.fasta*')" ] || fail "an interrupted run left $(compgen -G 'many.fasta*')"

# a damaged checkpoint is refused
cp -r "$(readlink -f $masked)" damaged
printf 'x' | dd of=damaged/model.safetensors bs=1 seek=5000 conv=notrunc status=none
wrong 1 'model.safetensors' '.' --checkpoint damaged in.fasta
