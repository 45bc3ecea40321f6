#!/usr/bin/env bash
# In bf16, a rank keeps only the fp32 values that it updates, and receives the weights of the others rounded. Runs
# that move between one, two and four ranks keep their bits. Tables of tokens with an owner, which passes read in
# fp32, travel whole.
. "$PLM_ROOT/tests/support/shell/trainer.sh"
. "$PLM_ROOT/tests/support/shell/ranks.sh"
small_fasta text.fasta 300
plm-pipeline ingest text.fasta --corpus corpus --tokenizer byte --split train=0.8,valid=0.1,test=0.1 -q
trainer_config unet bf16
common=("${rank_settings[@]}" --set data.tokenizer=byte --set trainer.steps=8 --set trainer.checkpoint.every=2)

# 261 tokens of 256 elements: the embedding and the value embeddings have owners
run=$PLM_TMP/quiet
start_packer "$run" "${common[@]}"
run_ranks 1 "$run" "${common[@]}" || fail "one rank ended with $?"
stop_packer
python3 - "$run/checkpoints/step_00000008/model.safetensors" <<'PYTHON' || fail "no table of tokens is large enough"
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
large = [n for n, t in header.items() if n != "__metadata__" and "embed" in n and t["shape"][0] * t["shape"][1] >= 65536]
sys.exit(len(large) < 2)
PYTHON

run=$PLM_TMP/moved
start_packer "$run" "${common[@]}"
PLM_STOP_WAIT=1 start_ranks_for 4 "$run" 3 "${common[@]}"
kill -USR1 "$trainer_pid"
wait "$trainer_pid" || fail "four ranks ended with $? after SIGUSR1"
start_ranks_for 1 "$run" 5 "${common[@]}"
kill_trainer
run_ranks 2 "$run" "${common[@]}" || fail "two ranks ended with $?"
stop_packer
same_run "$PLM_TMP/quiet" "$run" 8
[ -z "$(jq -e 'select(.exact == false)' "$run/trainer.jsonl")" ] || fail "it calls itself inexact"

# two groups, as if they were on two hosts: of two ranks each, and of one, which does nothing within its group
for size in 2 1; do
  run=$PLM_TMP/rails-$size
  start_packer "$run" "${common[@]}"
  PLM_RANK_GROUP=$size run_ranks $((2 * size)) "$run" "${common[@]}" || fail "two groups of $size ended with $?"
  stop_packer
  same_run "$PLM_TMP/quiet" "$run" 8
done
