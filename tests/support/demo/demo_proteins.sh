#!/usr/bin/env bash
# The last part of `make demo`: what the trained model says about proteins it has not seen.
#
#   demo_proteins.sh CHECKPOINT CORPUS FAMILIES.tsv
#
# Hides every seventh residue of each validation sequence, lets `generate` fill them in, and prints the
# share that is correct by family and one protein in full; then the variant map of a stretch of it.
set -euo pipefail
plm=build/bin/plm-pipeline
checkpoint=$1 corpus=$2 families=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One sequence a line, NAME tab RESIDUES: at most 480 of them, so that each fits into one chunk.
"$plm" corpus -q "$corpus" --fasta --split valid |
  awk '/^>/ { if (name != "") print name "\t" substr(residues, 1, 480); name = substr($1, 2); residues = ""; next }
       { residues = residues $0 }
       END { print name "\t" substr(residues, 1, 480) }' >"$work/true"
awk -F'\t' '{ masked = ""
              for (i = 1; i <= length($2); i++) masked = masked (i % 7 == 0 ? "_" : substr($2, i, 1))
              print ">" $1 "\n" masked }' "$work/true" >"$work/masked.fasta"
"$plm" generate -q --checkpoint "$checkpoint" "$work/masked.fasta" --output - --temperature 0 --steps 1 |
  awk '/^>/ { if (name != "") print name "\t" residues; name = substr($1, 2); residues = ""; next }
       { residues = residues $0 }
       END { print name "\t" residues }' >"$work/filled"

awk -F'\t' -v protein="$work/protein" '
  FILENAME ~ /families/ { family[$2] = $1; next }
  FILENAME ~ /true/ { residues[$1] = $2; next }
  { name = $1; sub(/_[0-9]+$/, "", name); if (!(name in residues)) name = $1
    group = (name in family) ? family[name] : "no family"
    right = 0; hidden = 0
    for (i = 7; i <= length(residues[name]); i += 7) {
      hidden++
      if (substr(residues[name], i, 1) == substr($2, i, 1)) right++
    }
    sequences[group]++; all[group] += hidden; good[group] += right; total += hidden; found += right
    if (group != "no family" && hidden >= 30) {
      share[name] = right / hidden; of[name] = group; answer[name] = $2
    } }
  function bar(share,  text, i) { for (i = 0; i < share * 40; i++) text = text "█"; return text }
  END {
    printf "%-34s %9s %9s\n", "family", "sequences", "correct"
    for (group in all)
      printf "%-34s %9d %8.0f %%  %s\n", group, sequences[group], 100 * good[group] / all[group], bar(good[group] / all[group]) | "sort -t% -k1.46,1nr"
    close("sort -t% -k1.46,1nr")
    printf "%-34s %9s %8.0f %%\n", "all hidden residues", "", 100 * found / total
    for (name in share)
      if (sequences[of[name]] >= 3 && share[name] > best) { best = share[name]; shown = name }
    print of[shown] "\t" shown "\t" residues[shown] "\t" answer[shown] >protein
  }' "$families" "$work/true" "$work/filled"

IFS=$'\t' read -r family name residues filled <"$work/protein"
echo
echo "One of them, $name ($family)."
echo "A hidden residue is _; * marks one that the model filled in correctly, x one that it did not."
awk -v residues="$residues" -v filled="$filled" 'BEGIN {
  for (from = 1; from <= 180 && from <= length(residues); from += 60) {
    hidden = ""; mark = ""
    for (i = from; i < from + 60 && i <= length(residues); i++) {
      hides = i % 7 == 0
      hidden = hidden (hides ? "_" : substr(residues, i, 1))
      mark = mark (hides ? (substr(residues, i, 1) == substr(filled, i, 1) ? "*" : "x") : " ")
    }
    printf "\n  given  %s\n  filled %s\n  true   %s\n         %s\n", hidden, substr(filled, from, 60), substr(residues, from, 60), mark
  } }'

echo
echo "Every substitution in its first 60 residues: a column is a position, a row the new residue."
echo "The darker, the less likely the model finds it; + is likelier than the true residue."
printf '>%s\n%s\n' "$name" "${residues:0:60}" >"$work/wild.fasta"
"$plm" score -q --checkpoint "$checkpoint" --wild-type "$work/wild.fasta" --all --plot
