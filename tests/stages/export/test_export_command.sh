#!/usr/bin/env bash
# plm-pipeline export and push without Python: where a folder is written, what is replaced or kept, what the files
# and the printed commands say. That transformers opens them: test_export.py.
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

# ---- push prints the commands ----
push() { PATH=$PLM_BIN:/usr/bin:/bin plm-pipeline push "$@"; }
expect 0 push me/model --checkpoint "$checkpoint" --dry-run --dtype bfloat16 --license cc-by-4.0
says out "^plm-pipeline export --checkpoint $checkpoint --output [^ ]+ --name me/model --dtype bfloat16 --license cc-by-4.0$"
says out '^hf upload me/model [^ ]+ \. --repo-type model --commit-message plm-pipeline$'
expect 0 push me/model --folder new --dry-run --private --revision v1 --message 'first try' --create-pr
[ "$(wc -l <out)" -eq 1 ] || fail "an exported folder is exported again: $(cat out)"
says out "^hf upload me/model .*new \. --repo-type model --private --revision v1 --commit-message 'first try' --create-pr$"
for name in me/ /model a//b ../x me/.x -me/x 'me/a b' me/a--b; do
  got=0
  push --dry-run --folder new -- "$name" >out 2>err || got=$?
  [ "$got" -eq 2 ] || fail "push takes the name $name: $got"
done

# ---- push as a whole: what it prints, what hf is given, what is left ----
# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}
expect 0 export_to numbers --json
parameters=$(jq .parameters out) bytes=$(jq .bytes out)
[ "$bytes" -gt $((4 * parameters)) ] && [ "$bytes" -lt $((4 * parameters + 100000)) ] ||
  fail "$parameters parameters have $bytes bytes"
jq -e --arg output "$PWD/numbers" '. == {output: $output, step: 4, weights: "ema", dtype: "float32",
  parameters, bytes, evaluated}' out >/dev/null || fail "export --json: $(cat out)"
prints 0 export_to people --weights model <<END
$PWD/people: $(sed ':a;s/\B[0-9]\{3\}\>/,&/;ta' <<<"$parameters") parameters, model weights in float32, $(
  awk "BEGIN { printf \"%.1f\", $bytes / 1e6 }") MB, step 4
END
prints 0 plm-pipeline export --checkpoint people --output again <<END
$PWD/again: $(sed ':a;s/\B[0-9]\{3\}\>/,&/;ta' <<<"$parameters") parameters, model weights in float32, 0.4 MB
END
prints 0 push me/model --checkpoint "$checkpoint" --dry-run --weights model --dtype bfloat16 --license mit <<END
plm-pipeline export --checkpoint $checkpoint --output model --name me/model --weights model --dtype bfloat16 --license mit
hf upload me/model model . --repo-type model --commit-message plm-pipeline
END
prints 0 push model --checkpoint "$checkpoint" --dry-run --message "it's" --private <<END
plm-pipeline export --checkpoint $checkpoint --output model --name model
hf upload model model . --repo-type model --private --commit-message 'it'\\''s'
END
prints 0 push me/model --dry-run --step 4 <<END
plm-pipeline export --checkpoint $checkpoint --output model --name me/model
hf upload me/model model . --repo-type model --commit-message plm-pipeline
END
mkdir hub temporary
cat >hub/hf <<'END'
#!/bin/sh
printf '%s\n' "$@" >"$HF_ARGUMENTS"
ls "$3" >"$HF_ARGUMENTS.files"
echo 'hf speaks'
exit "${HF_CODE:-0}"
END
chmod +x hub/hf
export HF_ARGUMENTS=$PWD/given TMPDIR=$PWD/temporary
# uploads CODE COMMAND…: with this hf
uploads() { PATH=$PWD/hub:$PATH expect "$1" plm-pipeline push "${@:2}"; }
uploads 0 me/model --folder new
printf '%s\n' upload me/model new . --repo-type model --commit-message plm-pipeline | diff - given || fail "hf got other words"
[ "$(cat out)" = 'hf speaks' ] || fail "push --folder printed: $(cat out)"
ls new | diff - given.files || fail "another folder was uploaded"
uploads 0 me/model --folder new --json
[ "$(cat out)" = '{"repository":"me/model","uploaded":true}' ] || fail "push --json printed: $(cat out)"
says err '^hf speaks$'
cp -r new -- -new
uploads 0 me/model --folder=-new --private --revision v1 --message 'a message' --create-pr
printf '%s\n' upload me/model ./-new . --repo-type model --private --revision v1 --commit-message 'a message' --create-pr |
  diff - given || fail "hf got other words"
uploads 0 me/model --checkpoint "$checkpoint"
sed "3s|.*|FOLDER|" given | diff - <(printf '%s\n' upload me/model FOLDER . --repo-type model --commit-message \
  'plm-pipeline: step 4, ema weights') || fail "hf got other words for a checkpoint: $(cat given)"
ls new | diff - given.files || fail "the export that was uploaded has other files"
[ -z "$(ls -A temporary)" ] || fail "push left $(ls temporary)"
HF_CODE=7 uploads 1 me/model --checkpoint "$checkpoint" --message mine
says err '^plm-pipeline: `hf upload` ended with 7$'
says given '^mine$'
[ -z "$(ls -A temporary)" ] || fail "push left $(ls temporary)"
# hf is looked for on PATH, also in the working folder where a part of it is empty
cp hub/hf hf
PATH=:/usr/bin:/bin expect 0 "$PLM_BIN/plm-pipeline" push me/model --folder new
chmod -x hf
for path in /usr/bin:/bin "/nowhere:/usr/bin:/bin:$PWD"; do
  PATH=$path expect 1 "$PLM_BIN/plm-pipeline" push me/model --folder new
  says err '^plm-pipeline: nothing was uploaded: the command `hf` is not on PATH$'
  [ "$(cat out)" = 'hf upload me/model new . --repo-type model --commit-message plm-pipeline' ] || fail "$(cat out)"
done
for option in checkpoint=x step=4 weights=ema dtype=float32 license=mit; do
  uploads 2 me/model --folder new "--$option"
  says err "^plm-pipeline: --folder is uploaded unchanged and cannot be combined with --${option%=*}$"
done
uploads 2 me/model --folder "$checkpoint"
says err 'is a checkpoint, which includes the optimizer.s state$'
uploads 2
says err '^plm-pipeline: push needs the name of one repository: OWNER/NAME$'
uploads 2 me/a me/b
long=$(printf 'x%.0s' {1..96})
for name in "$long" "me/$long" A.b_c-9 9/z; do uploads 0 "$name" --folder new --dry-run; done
for name in "${long}x" "me/${long}x" .x _/-x me/x..y '' me/x/y 'é'; do
  uploads 2 --folder new --dry-run -- "$name"
  says err "^plm-pipeline: \".*\" is not a name that the Hub allows$"
done
expect 2 plm-pipeline export --checkpoint "$checkpoint" --step 4 --output x
says err '^plm-pipeline: --checkpoint cannot be combined with --run or --step$'
expect 1 plm-pipeline export --step 3 --output x
says err "^plm-pipeline: $PWD/run: the run has no checkpoint of step 3$"
expect 1 plm-pipeline export --run nowhere --output x
says err "^plm-pipeline: there are no checkpoints in $PWD/nowhere$"
mkdir -p bare/checkpoints
expect 1 plm-pipeline export --run bare --output x
says err "^plm-pipeline: no checkpoint in $PWD/bare/checkpoints verifies$"
