#!/usr/bin/env bash
# The last part of `make demo-labels`: how much each model knows about the secondary structure of the test
# chains, and one of them in full.
#
#   demo_structure.sh TABLE.csv.gz FOLDER
#
# TABLE has the columns name,sequence,structure,split. FOLDER has probe.json and evaluate.json, which
# `probe --json` and `evaluate --json` printed, and predictions.csv of `predict`. The chain that is shown has
# the median accuracy of all, so it is neither a good nor a bad example.
set -euo pipefail
export LC_ALL=C.UTF-8 # points, not commas, in numbers
table=$1 folder=$2
helix='' strand='' plain=''
[ ! -t 1 ] || [ -n "${NO_COLOR-}" ] || helix=$'\033[31m' strand=$'\033[33m' plain=$'\033[0m'

probed=$(jq -r '.accuracy.value' "$folder/probe.json")
alone=$(jq -r '.baseline.accuracy.value' "$folder/probe.json")
tuned=$(jq -r '.accuracy' "$folder/evaluate.json")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
zcat "$table" >"$work/table.csv"

awk -F, -v probed="$probed" -v alone="$alone" -v tuned="$tuned" -v work="$work" '
  function bar(share,  text, i) { for (i = 0; i < share * 50; i++) text = text "█"; return text }
  function row(text, share) { printf "%-52s %5.1f %%  %s\n", text, 100 * share, bar(share) }
  FILENAME ~ /table/ { if ($4 == "test") { sequence[$1] = $2; truth[$1] = $3 } next }
  $1 in truth {
    right = labels = 0
    for (i = 1; i <= length($2); i++) {
      label = substr(truth[$1], i, 1)
      if (label == "?" || label == "") continue
      labels++
      count[label]++
      right += substr($2, i, 1) == label
    }
    if (labels) print right / labels "\t" $1 "\t" sequence[$1] "\t" truth[$1] "\t" $2 >(work "/chains")
    total += labels
  }
  END {
    for (label in count) if (count[label] > count[most]) most = label
    printf "Correctly predicted residues, of %d in the test chains:\n\n", total
    row("always " most ", the most frequent class", count[most] / total)
    row("the amino acid alone: linear probe", alone)
    row("language model, not fine-tuned: linear probe", probed)
    row("fine-tuned model", tuned)
  }' "$work/table.csv" "$folder/predictions.csv"

sort -g "$work/chains" >"$work/sorted"
sed -n "$(($(wc -l <"$work/sorted") / 2 + 1))p" "$work/sorted" >"$work/shown"
IFS=$'\t' read -r share name sequence truth predicted <"$work/shown"
printf '\nThe chain of median accuracy, as the fine-tuned model predicts it: %s, %.0f %% correct.\n' "$name" \
  "$(awk -v share="$share" 'BEGIN { print 100 * share }')"
printf '%sH is in a helix%s, %sE in a strand%s, - (class C) in neither; ? has no label. x marks wrong residues.\n' \
  "$helix" "$plain" "$strand" "$plain"
awk -v sequence="$sequence" -v truth="$truth" -v predicted="$predicted" -v helix="$helix" -v strand="$strand" \
  -v plain="$plain" '
  function colored(text,  out, i, c) {
    for (i = 1; i <= length(text); i++) {
      c = substr(text, i, 1)
      out = out (c == "H" ? helix c plain : c == "E" ? strand c plain : c == "C" ? "-" : c)
    }
    return out
  }
  BEGIN {
    for (from = 1; from <= length(sequence); from += 60) {
      wrong = ""
      for (i = from; i < from + 60 && i <= length(sequence); i++) {
        label = substr(truth, i, 1)
        wrong = wrong (label != "?" && label != substr(predicted, i, 1) ? "x" : " ")
      }
      sub(/ +$/, "", wrong)
      printf "\n  sequence   %s\n  structure  %s\n  predicted  %s\n", substr(sequence, from, 60), \
        colored(substr(truth, from, 60)), colored(substr(predicted, from, 60))
      if (wrong != "") printf "             %s\n", wrong
    }
  }'
