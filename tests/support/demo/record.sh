#!/usr/bin/env bash
# Records the README's terminal images again: trains as ./pipeline.yaml says, in a tmux of 100
# columns, and writes doc/images/up.svg (the screen of `up` after two thirds of the steps) and
# doc/images/metrics-plot.svg. data/ must hold the corpus (`make demo` makes it); the run is temporary.
# If `make demo-labels` has run, it also writes doc/images/structure.svg, which shows its result.
#
#   tests/support/demo/record.sh [--set KEY=VALUE]...
set -euo pipefail
cd "$(dirname "$0")/../../.."
folder=$(mktemp -d)
session=record-$$
run=$folder/runs/demo
end() {
  tmux kill-session -t "$session" 2>/dev/null || true
  rm -rf "$folder"
}
trap end EXIT
export PATH=$PWD/build/bin:$PATH
steps=$(plm-pipeline config "$@" --json | jq '."trainer.steps".value')
mkdir -p doc/images
cp pipeline.yaml "$folder"
ln -s "$PWD/data" "$folder/data"

screen() { tmux capture-pane -p -e -t "$session"; }
type_in() { tmux send-keys -t "$session" "$1" Enter; }
draw() { python3 tests/support/demo/terminal_svg.py --columns 100 >"doc/images/$1.svg"; }

tmux new-session -d -s "$session" -x 100 -y 24 -c "$folder" \
  "env -u NO_COLOR -u PROMPT_COMMAND PS1='$ ' bash --norc --noprofile"
type_in clear
sleep 1
type_in "plm-pipeline up $*"
trained() { cat "$run/trainer.jsonl" 2>/dev/null | wc -l; }
until [ "$(trained)" -ge $((steps * 2 / 3)) ] && screen | grep ' | valid' >/dev/null; do
  tmux has-session -t "$session"
  sleep 0.5
done
screen | draw up
until [ -e "$run/DONE" ] && screen | grep 'the run is complete' >/dev/null; do sleep 0.5; done
type_in clear
sleep 1
type_in "plm-pipeline metrics trainer --plot"
until screen | grep " $steps\$" >/dev/null; do sleep 0.5; done
screen | grep -v '^\$ *$' | draw metrics-plot # without the next prompt
if [ -e runs/structure/measured/predictions.csv ]; then
  script -qec "tests/support/demo/demo_structure.sh tests/data/structure.csv.gz runs/structure/measured" /dev/null |
    tr -d '\r' | python3 tests/support/demo/terminal_svg.py --columns 100 >doc/images/structure.svg
fi
