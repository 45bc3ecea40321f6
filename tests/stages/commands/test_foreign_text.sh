#!/usr/bin/env bash
# Names and lines from elsewhere reach neither the terminal as control characters nor JSON as bytes
# that are not UTF-8.
. "$PLM_ROOT/tests/support/shell/lib.sh"

escape=$'\033[2J' bad=$'\xff' csi=$'\xc2\x9b'

# printable FILE…: no control characters but tabs and newlines, no C1 controls, and valid UTF-8
printable() {
  for file in "$@"; do
    if LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$file"; then
      cat -v "$file" >&2
      fail "$file has control characters"
    fi
    iconv -f UTF-8 -t UTF-8 "$file" >/dev/null || fail "$file is not UTF-8"
  done
}

# ---- names of sequences ----
{
  small_fasta /dev/stdout 60
  printf '>n%s%s%s\nLAGV1SER\n' "$escape" "$bad" "$csi"
  for i in 1 2 3; do printf '>good%d%s%s%s\nLAGVSERTIDPKQNFYMHWC%s\n' "$i" "$escape" "$bad" "$csi" "${i//?/A}"; done
} >"strange$bad.fasta"
expect 0 plm-pipeline ingest "strange$bad.fasta" --corpus corpus --split train=1
says err 'n\\x1b\[2J\\xff'
printable out err
expect 0 plm-pipeline corpus corpus
printable out err
expect 0 plm-pipeline corpus corpus --json
jq -e '.sources[0].name | contains("strange")' out >/dev/null || fail "no source"
printable out err
small_config pipeline.yaml unet
expect 0 plm-pipeline trace --step 1
printable out err
for step in $(seq 1 12); do plm-pipeline trace --step "$step" --json; done >all.jsonl
printable all.jsonl
jq -r '.documents[].name' all.jsonl | LC_ALL=C grep -q $'^good1\033\[2J\xef\xbf\xbd\xc2\x9b$' ||
  fail "JSON has not the name with the replacement character"
plm-pipeline corpus corpus --fasta --split train >out
LC_ALL=C grep -q ">good1${escape//[/\\[}$bad" out || fail "FASTA is data and stays as it is"
script -qec "plm-pipeline corpus corpus --fasta --split train" /dev/null </dev/null >terminal
tr -d '\r' <terminal >out
says out '>good1\\x1b\[2J\\xff\\xc2\\x9b'
printable out

# ---- configurations ----
printf '"key%s": 1\ntrainer: {steps: "x\\e[2J\\ny"}\n' '\e[2J\u009b' >wrong.yaml
expect 2 plm-pipeline validate -c wrong.yaml
says err 'unknown key "key\\x1b\[2J\\xc2\\x9b"'
says err 'found the string "x\\x1b\[2J\\x0ay"'
printable out err
expect 2 plm-pipeline validate -c wrong.yaml --json
printable out err
expect 2 plm-pipeline up -c wrong.yaml
printable out err
expect 2 plm-pipeline config --set $'key\nplm-trainer: forged=1'
says err '^--set key\\x0aplm-trainer: forged: unknown key'
expect 2 plm-pipeline validate -c "no$escape$bad.yaml"
printable out err

# ---- files of a run that was copied here ----
mkdir -p copied/logs copied/checkpoints/step_00000004
cp pipeline.yaml copied/pipeline.yaml
printf 'plm-checkpoint 1\nstep 4\n%s%s line\n' "$escape" "$bad" >copied/checkpoints/step_00000004/MANIFEST
for json in "" --json; do
  expect 1 plm-pipeline checkpoints copied --verify $json
  printable out err
done
printf '{"step":4,"split":"valid\\u001b[2J%s","loss":1.5}\n{"step":8,"skipped":"\\u001b[2J%s%s"}\n' \
  "$bad" "$bad" "$csi" >copied/evaluator.jsonl
for options in "" --csv "--json --keys step,split,skipped"; do
  # shellcheck disable=SC2086
  expect 0 plm-pipeline metrics evaluator --run copied $options
  printable out err
  [ -s out ] || fail "nothing printed: $options"
done
script -qec "plm-pipeline metrics evaluator --run copied" /dev/null </dev/null >terminal
tr -d '\r' <terminal >out
says out 'skipped: \\x1b\[2J\\xff\\xc2\\x9b'
printable out
printf 'plm-trainer: %s%s\n' "$escape" "$bad" >copied/logs/trainer.log
expect 0 plm-pipeline logs --run copied
says out 'plm-trainer: \\x1b\[2J\\xff'
printable out err
mkdir runs && mv copied "runs/run$escape$bad"
for json in "" --json; do
  expect 0 plm-pipeline runs $json
  printable out err
done

# ---- a supervisor that is not one ----
cat >supervisor.py <<'END'
import socket, sys
path, answer = sys.argv[1], sys.argv[2].encode("utf-8", "surrogateescape") + b"\n"
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(4)
print("ready", flush=True)
while True:
    client, _ = server.accept()
    waits = b"wait" in client.recv(1000)
    client.sendall(answer.replace(b"false", b"true") if waits else answer)
    client.close()
END
plm-pipeline up packer -c pipeline.yaml >up.log 2>&1 &
up=$!
wait_for 10 plm-pipeline wait --ready --run run --timeout 1
kill -KILL $up
wait $up || true
socket=$(echo "$XDG_RUNTIME_DIR"/plm-*.sock)
rm "$socket" # the one that the supervisor left
answer=$(printf '{"ok":false,"error":"\\u001b[2J%s","failure":"%s\\u001b[2J\\n","stages":[{"stage":"\\u001b[2J%s","node":"%s","state":"\\u001b[2J","pid":1}]}' \
  "$bad" "$csi" "$bad" "$csi")
python3 supervisor.py "$socket" "$answer" >ready 2>&1 &
wait_for 10 grep -q ready ready
expect 0 plm-pipeline ps --run run
says out '\\x1b\[2J'
printable out err
expect 0 plm-pipeline ps --run run --json
printable out err
expect 1 plm-pipeline down --run run
says err '\\x1b\[2J\\xff'
printable out err
plm-pipeline wait --run run >out 2>err || true
says err 'x9b'
printable out err
echo "foreign text was escaped"
