# shellcheck shell=bash
# Functions for tests that drive plm-trainer and plm-packer without a supervisor. Sourced.
. "${PLM_ROOT:?}/tests/support/shell/lib.sh"
set +e # these scripts look at exit codes themselves

show_logs() {
  local log
  for log in "$PLM_TMP"/*.log; do
    [ -e "$log" ] && { echo "---- $(basename "$log")"; tail -n 25 "$log"; }
  done
}

# trainer_config ARCHITECTURE [PRECISION]: writes $PLM_TMP/pipeline.yaml of a run whose checkpoints have
# state of every kind
trainer_config() {
  cat >"$PLM_TMP/pipeline.yaml" <<YAML
version: 1
run: run
seed: 11
corpus: corpus
network: {$loopback, wait_packers_s: 300}
data: {max_length: 128}
model: {architecture: $1, hidden_size: 64, num_attention_heads: 2, num_hidden_layers: 2, num_unet_layers: 4, num_extra_layers: 1}
trainer:
  steps: 60
  batch_tokens: 512
  micro_batch_tokens: 256
  threads: 2
  precision: ${2:-fp32}
  schedule: {warmup_steps: 5, cooldown_steps: 20}
  optimizer: {momentum_warmup_steps: 30, weight_decay: 0.01}
  clip: {auto_percentile: 50}
  ema: 0.9
  checkpoint: {every: 10, keep_last: 100, keep_best: 0}
YAML
}

# start_packer RUN [ARG...]: starts one in the background; its pid is in $packer_pid
# shellcheck disable=SC2034 # packer_pid is for who called
start_packer() {
  local run=$1
  shift
  "$PLM_BIN/plm-packer" -c "$PLM_TMP/pipeline.yaml" --corpus "$PLM_TMP/corpus" --run "$run" "$@" \
    >>"$PLM_TMP/packer.log" 2>&1 &
  packer_pid=$!
}

# start_trainer RUN [ARG...]: starts one in the background; its pid is in $trainer_pid
start_trainer() {
  local run=$1
  shift
  "$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" --run "$run" "$@" \
    >>"$PLM_TMP/trainer.log" 2>&1 &
  trainer_pid=$!
}

# start_trainer_until CALL:PATTERN#N RUN [ARG...]: the same; it stops itself before that call
start_trainer_until() {
  local where=$1 run=$2
  shift 2
  must_be_there "$PLM_BUILD/tests/lib/stop_at.so"
  stopping_at "$where" "$PLM_BIN/plm-trainer" -c "$PLM_TMP/pipeline.yaml" --run "$run" "$@" \
    >>"$PLM_TMP/trainer.log" 2>&1 &
  trainer_pid=$!
}

# start_trainer_for RUN N [ARG...]: the same, and waits until it has stopped itself; trainer.jsonl has N lines
# then, and the next step is done
start_trainer_for() {
  local run=$1 lines=$2 before
  shift 2
  before=$(newest_step "$run")
  start_trainer_until "write:*/trainer.jsonl#$((lines - before + 1))" "$run" "$@"
  until_stopped "$trainer_pid" || fail "the trainer ended before $lines lines"
}

# newest_step RUN: the step of its newest checkpoint, from which a trainer resumes; 0 if there is none
newest_step() {
  local name
  name=$(cd "$1/checkpoints" 2>/dev/null && printf '%s\n' step_* | sort | tail -n 1)
  [[ $name =~ ^step_0*([0-9]+)$ ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# kill_trainer: with SIGKILL; it has ended afterwards
kill_trainer() {
  kill -9 "$trainer_pid"
  wait "$trainer_pid" 2>/dev/null
}

# stop_packer: ends $packer_pid; it writes nothing more afterwards
stop_packer() {
  kill "$packer_pid"
  wait "$packer_pid" 2>/dev/null
}

# run_trainer RUN [ARG...]: runs one to its end and returns its exit status
run_trainer() {
  start_trainer "$@"
  wait "$trainer_pid"
}

# run_undisturbed RUN [ARG...]: a complete run with its own packer, which disturbed runs are compared with. The arguments
# are the trainer's.
run_undisturbed() {
  start_packer "$1"
  run_trainer "$@" || fail "the undisturbed run ended with $?"
  stop_packer
}

lines_of() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }

# until_lines RUN N: waits until trainer.jsonl has N lines; fails if the trainer ends before. It may have written any
# number of further lines by then, so this is for runs without an end; otherwise: start_trainer_for.
until_lines() {
  local since=$SECONDS
  while [ "$(lines_of "$1/trainer.jsonl")" -lt "$2" ]; do
    still_waiting "$since" "$1/trainer.jsonl has not $2 lines"
    kill -0 "$trainer_pid" 2>/dev/null && continue
    # it may have written the last lines between the two looks
    [ "$(lines_of "$1/trainer.jsonl")" -ge "$2" ] || fail "the trainer ended before step $2"
  done
}

# start_and_kill RUN N [ARG...]: starts a packer and a trainer of a new run, and kills the trainer when
# trainer.jsonl has N lines. The packer keeps running; its pid is in $packer_pid.
start_and_kill() {
  local run=$1 lines=$2
  shift 2
  start_packer "$run" "$@"
  start_trainer_for "$run" "$lines" "$@"
  kill_trainer
  [ "$(lines_of "$run/trainer.jsonl")" -eq "$lines" ] || fail "not $lines lines in trainer.jsonl"
}

# state_of RUN NAME: hashes of a checkpoint's weights, average and moments, and its position in the data
state_of() {
  (cd "$1/checkpoints/$2" && sha256sum model.safetensors ema.safetensors optimizer.safetensors \
    && jq -c '[.step, .counters, .cursor, .exact]' trainer.json)
}

# same_run A B STEP: fails unless exact metrics and the state after STEP are bit-identical
same_run() {
  diff <(exact_metrics "$1/trainer.jsonl") <(exact_metrics "$2/trainer.jsonl") >"$PLM_TMP/difference.log" ||
    fail "exact metrics of $2 differ from those of $1: $(head -n 4 "$PLM_TMP/difference.log")"
  local name
  name=$(printf 'step_%08d' "$3")
  diff <(state_of "$1" "$name") <(state_of "$2" "$name") >"$PLM_TMP/difference.log" ||
    fail "$name of $2 differs from that of $1: $(cat "$PLM_TMP/difference.log")"
}

# same_checkpoints A B: fails unless every checkpoint of B verifies and has the bits of A's checkpoint of the same step
same_checkpoints() {
  local folder file said
  for folder in "$2"/checkpoints/step_*; do
    [ -e "$folder" ] || continue # there is none
    said=$(plm-pipeline checkpoints "$folder" --verify 2>&1) || fail "$folder is not intact: $said"
    for file in model ema optimizer; do
      cmp "$1/checkpoints/$(basename "$folder")/$file.safetensors" "$folder/$file.safetensors" ||
        fail "$folder has other bits"
    done
  done
}

# partitioned RANK TRACK: fails unless the events of this track in each step of a rank, whose events are read from standard
# input, follow each other without a gap, in nanoseconds, from the beginning of the step to its end
partitioned() {
  local wrong
  wrong=$(jq -r --argjson track "$2" '
    def ns: . * 1000 | round;
    [.[] | select(.cat == "step" and .tid == 0)] as $steps |
    ([.[] | select(.tid == $track and .cat != "step") | {name, b: (.ts | ns), d: (.dur | ns)}] |
      sort_by([.b, -.d])) as $events |
    (if ($steps | length) == 0 then "there is no step" else empty end),
    ($steps[] | .name as $name | (.ts | ns) as $begin | ($begin + (.dur | ns)) as $last |
      reduce ($events[] | select(.b >= $begin and .b < $last)) as $e ({now: $begin, wrong: ""};
        if .wrong != "" or $e.b < .now then . elif $e.b > .now then .wrong = "before \($e.name)" else .now += $e.d end) |
      if .wrong != "" then "a gap \(.wrong) in \($name)"
      elif .now != $last then "\($name) ends at \($last), and its events at \(.now)" else empty end)') ||
    fail "rank $1, track $2: jq cannot say"
  [ -z "$wrong" ] || fail "rank $1, track $2: $wrong"
}
