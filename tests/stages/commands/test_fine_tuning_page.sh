#!/usr/bin/env bash
# The commands of doc/fine-tuning.md, one after another, on a small model: they are there, in this order, and lead from a
# FASTA and a CSV to predictions.
. "$PLM_ROOT/tests/support/shell/lib.sh"
page=$PLM_ROOT/doc/fine-tuning.md
small_fasta proteins.fasta 150
small_fasta new.fasta 5 9
{
  echo name,family
  awk '/^>/ { name = substr($1, 2) } !/^>/ { print name "," (gsub(/[LAG]/, "") > length($0) * 0.8 ? "" : length($0) % 2 ? "odd, or so" : "even") }' \
    proteins.fasta | sed 's/,odd, or so$/,"odd, or so"/'
} >labels.csv
# the first file of the page is for classes, the second for numbers
awk '/^```yaml$/ { file = "file" ++count ".yaml"; next } /^```$/ { file = "" } file != "" { print > file }' "$page"
sed 's/ *#.*//' file1.yaml >fine-tune.yaml
sed 's/ *#.*//' file2.yaml >numbers.yaml
# the page's model is downloaded; here it is a small one, from scratch
shrink=(--set trainer.init_from=null --set model.preset=none --set model.hidden_size=32 --set model.num_attention_heads=2
  --set model.num_hidden_layers=1 --set trainer.steps=4 --set trainer.checkpoint.every=2 --set data.max_length=256
  --set trainer.batch_tokens=1024 --set trainer.micro_batch_tokens=512 --set trainer.threads=1
  --set 'network.feed=tcp://127.0.0.1:*' --set 'network.evaluation_feed=tcp://127.0.0.1:*'
  --set 'network.announcements=tcp://127.0.0.1:*')

mapfile -t commands < <(sed -n '/^## The commands/,/^This is/p' "$page" | sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' | sed -n 's/^    //p')
[ ${#commands[@]} -eq 10 ] || fail "the page has ${#commands[@]} commands"
for command in "${commands[@]}"; do
  command=${command%%  #*}
  read -ra words <<<"$command"
  case $command in
    "hf download"* | \$EDITOR*) continue ;;
    *" fine-tune.yaml"*) words+=("${shrink[@]}") ;;
  esac
  expect 0 "${words[@]}"
  echo "$command" >>ran
  [ "${words[1]}" != evaluate ] || cp out evaluated
done
[ "$(wc -l <ran)" -eq 8 ] || fail "these commands ran: $(cat ran)"
expect 0 jq -e '.step == 4 and .split == "valid" and .labels > 0 and .accuracy >= 0' <(tail -n 1 runs/family/evaluator.jsonl)
[ "$(head -n 1 predictions.csv)" = name,prediction,probability ] || fail "$(head -n 1 predictions.csv)"
[ "$(tail -n +2 predictions.csv | grep -cE '^seq[0-4],("odd, or so"|even),0?\.[0-9]+$|^seq[0-4],("odd, or so"|even),1$')" -eq 5 ] ||
  fail "$(cat predictions.csv)"
says evaluated '^split +test of labelled.corpus$'
says evaluated '^measures +accuracy [01]\.[0-9]{4} '

# ---- the model before and after, beside the baseline, on a table with a split --------------------------------------
awk 'NR == FNR { if (/^>/) name = substr($1, 2); else sequence[name] = $0; next }
  FNR == 1 { print "sequence,family,set"; next }
  { name = $0; sub(/,.*/, "", name); sub(/[^,]*,/, ""); print sequence[name] "," $0 "," (FNR % 4 == 0 ? "test" : FNR % 4 == 1 ? "valid" : "train") }' \
  proteins.fasta labels.csv >table.csv
mapfile -t commands < <(sed -n '/^## The baseline/,/^The last command/p' "$page" | sed -n 's/^    \(plm-pipeline .*\)/\1/p')
[ ${#commands[@]} -eq 3 ] || fail "the page compares with the baseline by ${#commands[@]} commands"
for command in "${commands[@]}"; do
  read -ra words <<<"${command/--checkpoint esm2/--checkpoint runs/table/checkpoints/step_00000000}"
  [ "${words[1]}" != up ] || words+=("${shrink[@]}")
  expect 0 "${words[@]}"
done
[ "$(grep -cE '^runs/table/checkpoints/.* last +[0-9.]+ +[01]\.' out)" = 2 ] || fail "not two models: $(cat out)"
says out '^\(composition and length only\) +- '

# A sequence that is longer than in training is read whole, which is said once, or cut.
{ printf '>long\n%300s\n>short\n%40s\n' '' '' | tr ' ' A; } >long.fasta
cut=(plm-pipeline predict --checkpoint runs/family/checkpoints/latest long.fasta)
expect 0 "${cut[@]}" --output whole.csv --json
says err 'warning: sequences longer than the 256 tokens that the model was trained with, read whole: 1; --max-length 256 cuts them$'
[ "$(grep -c 'trained with' err)" = 1 ] && jq -e '.longer == 1 and .cut == 0' out >/dev/null || fail "$(cat out err)"
expect 0 "${cut[@]}" --output cut.csv --json --max-length 256
! grep -q 'read whole' err && jq -e '.longer == 0 and .cut == 1' out >/dev/null || fail "$(cat out err)"

# ---- the page's file for numbers, and the keys of adapters ---------------------------------------------------------
awk '/^>/ { name = substr($1, 2) } !/^>/ { print name "," length($0) / 10 }' proteins.fasta | sed 1iname,stability >labels.csv
command=$(sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' "$page" | sed -n 's/^    \(.*--labels stability .*\)/\1/p')
read -ra words <<<"$command"
expect 0 "${words[@]}"
expect 0 plm-pipeline validate numbers.yaml "${shrink[@]}"
expect 0 plm-pipeline up numbers.yaml "${shrink[@]}"
expect 0 jq -e '.step == 4 and .split == "valid" and .labels > 0 and (.rmse > 0)' <(tail -n 1 runs/stability/evaluator.jsonl)
expect 0 plm-pipeline validate numbers.yaml "${shrink[@]}" --set 'trainer.lora.rank=8' --set 'trainer.lora.alpha=16' \
  --set 'trainer.lora.targets=[q, v]' --set trainer.optimizer.lr_hidden=5e-4
