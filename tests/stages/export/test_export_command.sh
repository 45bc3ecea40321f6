#!/usr/bin/env bash
# plm-pipeline export without Python: where a folder is written, what is replaced or kept, and what the files say. That
# transformers opens them: test_export.py. Options, and push with a script as `hf`: tests/stages/commands/test_command_push.c.
. "$PLM_ROOT/tests/support/shell/lib.sh"
small_corpus corpus 2>/dev/null
small_config pipeline.yaml unet
expect 0 plm-pipeline up pipeline.yaml --set trainer.steps=4 --set trainer.ema=0.9
checkpoint=$(readlink -f run/checkpoints/latest)
export_to() { plm-pipeline export --checkpoint "$checkpoint" --output "$@"; }
# nothing_else FOLDER NAME...: the folder has exactly these entries
nothing_else() {
  local folder=$1
  shift
  [ "$(ls -A "$folder" | sort | paste -sd' ')" = "$(printf '%s\n' "$@" | sort | paste -sd' ')" ] ||
    fail "$folder has: $(ls -A "$folder")"
}

# ---- the place: new, with parents that do not exist, an empty folder, behind a link, with slashes at the end ----
mkdir empty real
ln -s real link
for place in new a/b/c empty link/inside slashes// "$PWD/absolute"; do
  expect 0 export_to "$place" --json
  jq -e --arg path "$(readlink -f "$place")" '.directory == $path or .path == $path or .output == $path' out >/dev/null ||
    fail "$place: $(cat out)"
  [ -s "$place/model.safetensors" ] || fail "nothing in $place"
done
nothing_else a b
nothing_else a/b c
nothing_else real inside
files=$(ls -A new | paste -sd' ')
for place in a/b/c empty real/inside slashes absolute; do
  [ "$(ls -A $place | paste -sd' ')" = "$files" ] || fail "$place has other files than new: $(ls -A $place)"
  for file in $files; do
    # the card has the folder's name, and the weights list the hashes of all files
    case $file in README.md | model.safetensors) continue ;; esac
    cmp "new/$file" "$place/$file" || fail "$file differs in $place"
  done
done
[ "$(stat -c %a new)" = "$(printf %o $((0777 & ~$(umask))))" ] || fail "mode $(stat -c %a new)"
for wrong in nowhere/.. nowhere/. new/..; do
  got=0
  export_to "$wrong" >out 2>err || got=$?
  [ "$got" -ne 0 ] || fail "$wrong was taken"
done

# ---- an earlier export is replaced if nobody changed it; anything else stays, or is moved aside ----
expect 0 export_to new --dtype bfloat16
[ "$(jq -r .dtype new/config.json)" = bfloat16 ] || fail "dtype is $(jq -r .dtype new/config.json)"
[ "$(jq -r .dtype empty/config.json)" = float32 ] || fail "dtype is $(jq -r .dtype empty/config.json)"
[ "$(stat -c %s new/model.safetensors)" -lt "$(($(stat -c %s empty/model.safetensors) * 6 / 10))" ] ||
  fail "bfloat16 is not half as large"
echo mine >>new/README.md
expect 1 export_to new
says err 'README.md was changed or added since'
says err 'move the folder aside with --force'
expect 0 export_to new --force
tail -n 1 new.previous-1/README.md | matches -x mine || fail "what was moved aside is not the old folder"
echo mine >new/own
expect 1 export_to new
says err 'own was changed or added since'
expect 0 export_to new --force
[ -e new.previous-2/own ] || fail "the second folder was not moved aside"
touch file
expect 1 export_to file
says err 'it exists and is not a folder'
mkdir strange
echo text >strange/text
expect 1 export_to strange
says err 'is not an export by plm-pipeline'
nothing_else strange text
for kind in MANIFEST:checkpoint checkpoints:run data.mdb:corpus .git:Git; do
  mkdir "never-${kind#*:}"
  touch "never-${kind#*:}/${kind%%:*}"
  expect 1 export_to "never-${kind#*:}" --force
  says err "the folder cannot be replaced: it is a .*${kind#*:}"
done
[ -z "$(find . -maxdepth 1 -name '.*.export-*')" ] || fail "temporary folders are left: $(ls -A)"

# ---- what a killed export leaves is removed by the next one ----
stopping_at "rename:*/killed#1" plm-pipeline export --checkpoint "$checkpoint" --output killed &
child=$!
until_stopped $child || fail "the export did not come to its end"
left=$(echo .killed.export-*)
[[ $left =~ ^\.killed\.export-[A-Za-z0-9]{6}$ ]] && [ -s "$left/model.safetensors" ] || fail "not the temporary folder: $(ls -A)"
kill -KILL $child
wait $child || true
expect 0 export_to killed
[ ! -e "$left" ] || fail "$left is left"

# ---- weights ----
expect 0 export_to of-model --weights model
! cmp -s of-model/model.safetensors empty/model.safetensors || fail "--weights model gives the average"

# ---- the card: the evaluations of a checkpoint, and one corpus or several ----
value_of() { sed -n '/type: '"$1"'$/,/value:/s/^ *value: //p' new/README.md; }
for metric in loss accuracy recall; do
  printf '%s %s\n' "$(jq -r "select(.step == 4).$metric" run/evaluator.jsonl)" "$(value_of $metric)" |
    awk '{ exit !($2 > 0 && ($1 - $2) ^ 2 < 1e-6) }' || fail "$metric in the card is $(value_of $metric)"
done
! matches -i 'mixture' <new/README.md || fail "the card of one corpus speaks of a mixture"

small_corpus second 300 2>/dev/null
sed 's|^corpus:.*|corpus: [{path: corpus, weight: 3}, {path: second, weight: 1}]|; s|^run:.*|run: mixed|' pipeline.yaml >mixed.yaml
expect 0 plm-pipeline up mixed.yaml --set trainer.steps=2
expect 0 plm-pipeline export --checkpoint mixed/checkpoints/latest --output of-mixture
says of-mixture/README.md 'mixture of.* corpus \(weight 3\), second \(weight 1\)'

# ---- what it says of a checkpoint ----
expect 0 export_to numbers --json
parameters=$(jq .parameters out) bytes=$(jq .bytes out)
[ "$bytes" -gt $((4 * parameters)) ] && [ "$bytes" -lt $((4 * parameters + 100000)) ] ||
  fail "$parameters parameters have $bytes bytes"
jq -e --arg output "$PWD/numbers" '. == {output: $output, step: 4, weights: "ema", dtype: "float32",
  parameters, bytes, evaluated}' out >/dev/null || fail "export --json: $(cat out)"

# ---- push: hf is looked for on PATH, also in the working folder where a part of it is empty ----
printf '#!/bin/sh\n' >hf
chmod +x hf
PATH=:/usr/bin:/bin expect 0 "$PLM_BIN/plm-pipeline" push me/model --folder new
chmod -x hf
for path in /usr/bin:/bin "/nowhere:/usr/bin:/bin:$PWD"; do
  PATH=$path expect 1 "$PLM_BIN/plm-pipeline" push me/model --folder new
  says err '^plm-pipeline: nothing was uploaded: the command `hf` is not on PATH$'
  [ "$(cat out)" = 'hf upload me/model new . --repo-type model --commit-message plm-pipeline' ] || fail "$(cat out)"
done
expect 2 plm-pipeline push me/model --folder "$checkpoint"
says err 'is a checkpoint, which includes the optimizer.s state$'
