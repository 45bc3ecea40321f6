#!/usr/bin/env bash
# The live block of `up` in a real terminal (tmux): at 80 and 60 columns no line of it is broken, a change of the width
# leaves nothing of the old block behind, the log above is complete, and nothing of the block is left at the end. Into a
# pipe, and with TERM=dumb, no escape sequence is printed. `ps --watch` shows one table, always in the same place.
. "$PLM_ROOT/tests/support/shell/lib.sh"
command -v tmux >/dev/null || {
  echo "tmux is not installed"
  exit 77
}
terminal() { tmux -S "$PLM_TMP/tmux" -f /dev/null "$@"; }
end_terminal() {
  local status=$?
  # what a failed check looked at: the last rows, and every row that may be one of the block's
  [ "$status" -eq 0 ] || { seen | grep -nE '^(loss|packers|checkpoint|starting) | %  step ' && seen | tail -n 20; } || true
  terminal kill-server 2>/dev/null || true
  (exit "$status")
  end_children
}
trap end_terminal EXIT
terminal -D & # the server, in the foreground, so that the runner can end it with the test
server_listens() { [ -S "$PLM_TMP/tmux" ]; }
wait_for 20 server_listens

small_corpus corpus 2>/dev/null
small_config pipeline.yaml transformer
long=(--set trainer.steps=200000)

name=log
# open COLUMNS COMMAND: a terminal that runs it, and stays when it has ended
open() {
  terminal new-session -d -s "$name" -x "$1" -y 20 "env $2; touch ended; exec sleep 1000000"
  terminal set-option -g history-limit 100000
  terminal set-option -g status off
}
seen() { terminal capture-pane -p -S - -t "$name:"; } # rows, from the first one that scrolled away
# lines, also those that the terminal has broken
joined() { terminal capture-pane -pJ -S - -t "$name:" | sed 's/ *$//'; }

serving='packers (0: [0-9.]+k/s|0: ready, [0-9]+ chunks? ahead|none serves)'
# block COLUMNS REGEX: the four lines are the last ones on the screen, whole, and the only ones of their kind; one of
# them matches
block() {
  local all last
  all=$(seen | grep -v '^ *$')
  last=$(tail -n 4 <<<"$all")
  paste -sd@ <<<"$last" |
    matches -E "^[^@]* %  step [0-9]+/[^@]*@loss [0-9.]+ [^@]*@$serving@checkpoint step [0-9]+" &&
    [ "$(grep -cE '^(\[[#.]+\])? *[0-9]+ %  step ' <<<"$all")" -eq 1 ] &&
    [ "$(grep -cE '^(loss|packers|checkpoint) ' <<<"$all")" -eq 3 ] &&
    [ "$(wc -L <<<"$last")" -lt "$1" ] && grep -qE "$2" <<<"$last"
}

# ---- widths ----
open 80 "plm-pipeline up pipeline.yaml ${long[*]}"
wait_for 60 block 80 '^\[[#.]{8,}\] +0 %  step .* left  [0-9.]+k tokens/s$'
# tmux breaks lines at once, but tells the new width up to a quarter of a second later. What is drawn in between is not
# where it should be, so nothing new happens during these changes: the stages stand still, and the block has noticed it.
mapfile -t stages < <(plm-pipeline ps --json | jq -r '.[].pid')
suspend "${stages[@]}"
wait_for 20 block 80 '^packers none serves$'
terminal resize-window -t "$name:" -x 60
wait_for 20 block 60 ' +0 %  step .* left'
terminal resize-window -t "$name:" -x 34
wait_for 20 block 34 '^ *0 %  step '
terminal resize-window -t "$name:" -x 100
wait_for 20 block 80 '^\[[#.]{16,}\] +0 %  step .* left  [0-9.]+k tokens/s$'
terminal resize-window -t "$name:" -y 12
wait_for 20 block 80 '^\[[#.]{16,}\] +0 %  step .* left  [0-9.]+k tokens/s$'
kill -CONT "${stages[@]}"
! terminal capture-pane -pe -t "$name:" | matches -F $'\033[3' || fail "colors with NO_COLOR"

# ---- a table that stays where it is ----
terminal new-session -d -s watch -x 80 -y 20 "plm-pipeline ps --watch; touch watched; exec sleep 1000000"
watch() { terminal capture-pane -p -S - -t watch:; }
table() {
  [ "$(watch | sed -n '1s/ .*//p')" = STAGE ] && [ "$(watch | grep -c STAGE)" -eq 1 ] &&
    [ "$(watch | grep -c ' ready ')" -eq 3 ]
}
wait_for 20 table
age() { watch | awk '$1 == "trainer.0" { print $6 }'; }
[[ $(age) =~ ^[0-9]+:[0-9]{2}$ ]] || fail "the age of the trainer: $(watch)"
[ "$(watch | wc -L)" -le 80 ] && [ "$(watch | sed -n 2,4p | grep -cE '^(trainer|evaluator|packer).0 ')" -eq 3 ] || fail "the table does not fit: $(watch)"
first=$(age)
older() { table && [ "$(age)" != "$first" ]; }
wait_for 20 older

# ---- the end: the log is whole, and the block is gone ----
terminal send-keys -t "$name:" C-c
wait_for 60 test -e ended
wait_for 20 test -e watched
joined >shown
says shown '^plm-pipeline: stopped; .* will continue from step [0-9]+$'
! grep -E '^(starting|loss|packers|checkpoint)[ :]| %  step ' shown || fail "something of the block is left"
for stage in trainer.0 evaluator.0 packer.0; do
  diff <(sed -E "s/^[^ ]+Z //; s/^plm-${stage%.*}: //" "run/logs/$stage.log") \
    <(sed -n "s/^$stage *| //p" shown) || fail "the log of $stage on the terminal is not that of its file"
done

# ---- colors, and stages that start late: the block of the resumed run is drawn in the first row, and leaves it ----
rm ended
name=colors
mkdir late
cp "$(command -v plm-pipeline)" late/
for program in plm-packer plm-trainer plm-evaluator; do
  printf '#!/bin/sh\nuntil [ -e %s/go ]; do sleep 0.05; done\nexec %s "$@"\n' "$PLM_TMP" "$(command -v $program)" >late/$program
  chmod +x late/$program
done
open 80 "-u NO_COLOR late/plm-pipeline up pipeline.yaml --set trainer.steps=200000"
is_first() { [[ $(seen | head -n 1) == *' %  step '* ]]; }
wait_for 20 is_first
touch go
below_the_log() { ! is_first && block 80 ''; }
wait_for 20 below_the_log
colored() { terminal capture-pane -pe -t "$name:" | matches -F $'\033[33mpackers'; }
wait_for 20 colored
terminal send-keys -t "$name:" C-c
wait_for 60 test -e ended

# ---- not a terminal, and one that can only print ----
expect 0 plm-pipeline up pipeline.yaml --run piped
says err '^trainer.0   \| step 12/12 '
! grep -q $'\033' err out || fail "escape sequences in a pipe"
script -qec "env -u NO_COLOR TERM=dumb plm-pipeline up pipeline.yaml --run dumb" typed >/dev/null 2>&1 </dev/null ||
  fail "with TERM=dumb: $(cat typed)"
says typed '^trainer.0   \| step 12/12 '
! grep -q $'\033' typed || fail "escape sequences on a dumb terminal"
