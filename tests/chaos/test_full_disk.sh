#!/usr/bin/env bash
# A full disk: checkpoints fail with a message, training continues, and earlier checkpoints are intact.
#
# The disk is a small tmpfs in a mount namespace of this script. It disappears with the last process that
# uses it, and no other test sees it.
. "${PLM_ROOT:?}/tests/support/shell/own_mounts.sh"
. "${PLM_ROOT:?}/tests/support/shell/trainer.sh"
small_corpus corpus
trainer_config transformer
reference=$PLM_TMP/reference
run_undisturbed "$reference"

disk=$PLM_TMP/disk
mkdir "$disk"
mount -t tmpfs -o size=3500k none "$disk" || fail "no tmpfs in the namespace"
run=$disk/run
start_packer "$run"
start_trainer "$run" --set trainer.checkpoint.max_failed_checkpoints=100
until_lines "$run" 60
wait "$trainer_pid"
echo "a full disk: exit $?, $(find "$run/checkpoints" -name 'step_*' | wc -l) checkpoints fitted"
grep -q "No space left on device" "$PLM_TMP/trainer.log" || fail "the disk was never full"
[ -z "$(find "$run/checkpoints" -name '.tmp-*')" ] || fail "unfinished folders are left"
"$PLM_BIN/plm-pipeline" checkpoints "$run" --verify >/dev/null || fail "a checkpoint is damaged"
diff <(exact_metrics "$reference/trainer.jsonl") <(exact_metrics "$run/trainer.jsonl") || fail "the metrics suffered"
