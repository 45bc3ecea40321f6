#!/usr/bin/env bash
# evaluator.tasks: each checkpoint that is due gets a line for each task, with the numbers of `probe` and of
# `score --assays` on that checkpoint, also if the evaluator was killed in the middle; metrics, Prometheus and
# TensorBoard have them; and a task is skipped while a newer checkpoint waits.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus 120
small_config pipeline.yaml transformer
target=MKTAYIAKQRQISFVKSHFS
mkdir assays
printf 'mutant,DMS_score,DMS_score_bin\nM1A,1,1\nK2E:T3S,0.5,0\nA4G,,1\nY5W,2,1\nI6L,0.1,0\n' >assays/one.csv
printf 'mutated_sequence,DMS_score\nMKTAYIAKQRQISFVKSHF,1\nMKKTAYIAKQRQISFVKSHFS,2\n%s,3\n' $target >assays/two.csv
cat >list.csv <<END
DMS_id,DMS_filename,UniProt_ID,target_seq,coarse_selection_type,DMS_binarization_cutoff
ONE,one.csv,P1,$target,Activity,
TWO,two.csv,P2,$target,Binding,2
END
small_fasta s.fasta 80 3
awk 'BEGIN {print "sequence,y,set"} /^>/ {next}
  {n++; x = $0; printf "%s,%.6f,%s\n", $0, gsub(/[LAGV]/, "", x) / length($0), n % 4 == 0 ? "test" : "train"}' \
  s.fasta >t.csv
# 22 proteins, whose contacts are every third pair of residues 7 and 26 apart
mkdir proteins
awk '/^>/ {next} length($0) >= 40 && ++n <= 22 {
  name = sprintf("proteins/p%02d", n)
  print ">p\n" $0 >(name ".fasta")
  for (i = 1; i + 7 <= length($0); i += 3) {
    print i, i + 7 >(name ".contacts")
    if (i + 26 <= length($0)) print i, i + 26 >(name ".contacts")
  }
  close(name ".fasta")
  close(name ".contacts")
}' s.fasta
cat >>pipeline.yaml <<'END'
  tasks:
    - {name: stability, kind: probe, path: t.csv, target: y, split: set, every: 2}
    - {name: gym, kind: assays, path: assays, reference: list.csv, every: 4}
    - {name: folds, kind: contacts, path: proteins, every: 4}
    - {name: part, kind: assays, path: assays, reference: list.csv, ids: [ONE], max_variants: 3, every: 4}
END
set -- -c pipeline.yaml --set trainer.steps=5 --set trainer.checkpoint.every=1 --set trainer.schedule.warmup_steps=0 \
  --set trainer.schedule.cooldown_steps=0
expect 0 plm-pipeline config "$@"
grep -q 'name: "gym", kind: assays, path: /.*/assays, reference: /.*/list.csv, every: 4}' out || fail "$(cat out)"
grep -q 'name: "part", kind: assays, .*, ids: \["ONE"\], max_variants: 3, every: 4}' out || fail "$(cat out)"
plm-packer "$@" >packer.log 2>&1 &
packer=$!
expect 0 plm-trainer "$@"

# ---- killed in the middle: when the first assay of the last checkpoint is finished ----
stopping_at 'rename:*/tasks/gym/TWO.csv#2' plm-evaluator "$@" >first.log 2>&1 &
evaluator=$!
until_stopped "$evaluator" || fail "the evaluator has not stopped: $(cat first.log)"
[ -e run/tasks/gym/ONE.csv ] || fail "no finished assay: $(ls -R run/tasks)"
kill -9 "$evaluator"
wait "$evaluator" || true
expect 0 plm-evaluator "$@"
says err '1 of 2 assays have been scored already'
[ ! -e run/tasks/gym ] || fail "scores are left: $(ls -R run/tasks)"
jq -r 'select(.set != "corpus") | "\(.step) \(.set) \(.split)"' run/evaluator.jsonl | sort -V >lines
diff lines - <<'END' || fail "other lines"
0 folds test
0 gym test
0 part test
0 stability test
2 stability test
4 folds test
4 gym test
4 part test
4 stability test
5 folds test
5 gym test
5 part test
5 stability test
END

# ---- the numbers are those of the commands ----
line() { jq -c --argjson s "$1" --arg n "$2" 'select(.step == $s and .set == $n)' run/evaluator.jsonl; }
for step in 0 2 5; do
  at=run/checkpoints/step_0000000$step
  expect 0 plm-pipeline probe --checkpoint $at t.csv --target y --split set --json -q
  jq -c '{spearman, pearson, r2, rmse} | {value: map_values(.value), low: map_values(.low), high: map_values(.high)}' \
    out >wanted
  jq -c '{alpha, baseline: .baseline | {spearman, pearson, r2, rmse} | map_values(.value)}' out >>wanted
  line $step stability | jq -c '{value: {spearman, pearson, r2, rmse}, low, high}, {alpha, baseline}' >got
  cmp wanted got || fail "step $step: $(cat wanted got)"
done
for step in 4 5; do
  expect 0 plm-pipeline score --checkpoint run/checkpoints/step_0000000$step --assays assays --reference list.csv \
    --scores scores$step --json -q
  jq -c '.average | [.Spearman, .AUC, .MCC, .NDCG, .Top_recall]' out >wanted
  line $step gym | jq -c '[.spearman, .auc, .mcc, .ndcg, .top_recall]' >got
  cmp wanted got || fail "step $step: $(cat wanted got)"
  [ "$(line $step gym | jq '.spearman_by_assay | keys | length')" = 2 ] || fail "not both: $(line $step gym)"
done
expect 0 plm-pipeline score --checkpoint run/checkpoints/step_00000005 --assays assays --reference list.csv --ids ONE \
  --max-variants 3 --scores part --json -q
jq -c '.average | [.Spearman, .AUC, .MCC, .NDCG, .Top_recall]' out >wanted
line 5 part | jq -c '[.spearman, .auc, .mcc, .ndcg, .top_recall]' >got
cmp wanted got || fail "a part of the assays: $(cat wanted got)"
line 5 part | jq -e '(.spearman_by_assay | keys) == ["ONE"]' >/dev/null || fail "not one: $(line 5 part)"

for step in 0 5; do
  expect 0 plm-pipeline probe --checkpoint run/checkpoints/step_0000000$step --task contacts proteins --json -q
  measures='[.precision_l, .precision_l2, .precision_l5, .chance, .trained, .tested, .heads, .heads_used]'
  jq -c "$measures" out >wanted
  line $step folds | jq -c "$measures" >got
  cmp wanted got || fail "step $step: $(cat wanted got)"
  jq -e '.[4] == 20 and .[5] == 2 and .[3] > 0' got >/dev/null || fail "step $step: $(cat got)"
done

# ---- where they are shown ----
expect 0 plm-pipeline metrics evaluator --run run --csv
says out 'spearman'
grep -qa 'stability/baseline/spearman' run/tensorboard/evaluator/* || fail "TensorBoard lacks the baseline"
grep -qa 'folds/precision_l5' run/tensorboard/evaluator/* || fail "TensorBoard lacks the contacts"
grep -qa 'gym/ndcg' run/tensorboard/evaluator/* || fail "TensorBoard lacks the assays"
expect 0 plm-pipeline report run --output report.html
grep -q 'stability' report.html || fail "the report lacks the task"

# ---- every task measures the last checkpoint of a run that ended early ----
jq -c '.step = 3' run/DONE >early
mv early run/DONE
expect 0 plm-evaluator "$@"
jq -r 'select(.set != "corpus" and .step == 3) | .set' run/evaluator.jsonl | sort | diff - <(printf '%s\n' folds gym part stability) ||
  fail "not every task at step 3"

# ---- skipped while a newer checkpoint waits ----
mv run/evaluator.jsonl kept.jsonl
mv run/DONE DONE
rm -r run/checkpoints/step_00000005
plm-evaluator "$@" >behind.log 2>&1 &
evaluator=$!
(wait_for 60 any_line run/evaluator.jsonl '.step == 4 and .set == "gym" and has("ndcg")') || fail "step 4 is not measured: $(cat behind.log; tail -n 3 packer.log)"
kill "$evaluator"
wait "$evaluator" || true
jq -r 'select(.set == "stability") | "\(.step) \(.task_skipped // .predictions)"' run/evaluator.jsonl >got
diff got - <<'END' || fail "not skipped"
0 the checkpoint of step 4 is newer
2 the checkpoint of step 4 is newer
4 20
END
grep -q 'stability is skipped for step 2, because the checkpoint of step 4 is newer' behind.log || fail "$(cat behind.log)"

# ---- what is refused ----
plm-pipeline validate -c pipeline.yaml --set 'evaluator.tasks=[{name: a, path: none.csv, target: y}]' 2>err
says err 'warning: evaluator.tasks: a: .*/none.csv does not exist on this host'
expect 6 plm-evaluator "$@" --set 'evaluator.tasks=[{name: a, path: none.csv, target: y}]'
says err 'none.csv'
expect 7 plm-evaluator "$@" --set 'evaluator.tasks=[{name: a, path: t.csv, target: z}]'
says err 't.csv:1: the table has no column "z"'
expect 2 plm-pipeline validate -c pipeline.yaml --set 'evaluator.tasks=[{name: a, path: t.csv, target: z}]'
says err '/t.csv:1: the table has no column "z"'
wrong=(--set 'evaluator.tasks=[{name: a, kind: assays, path: assays, reference: list.csv, ids: [ONE, TOW]}]')
expect 7 plm-evaluator "$@" "${wrong[@]}"
says err 'list.csv lists no assay "TOW"'
expect 2 plm-pipeline validate -c pipeline.yaml "${wrong[@]}"
says err 'evaluator.tasks: a: .*list.csv lists no assay "TOW"'
says err 'did you mean "TWO"'
expect 7 plm-evaluator "$@" --set 'evaluator.tasks=[{name: a, kind: contacts, path: assays}]'
says err 'evaluator.tasks: a: 0 proteins are too few: 20 for training and at least one for the test'
folder=(--set 'evaluator.tasks=[{name: a, path: assays, target: y}]')
expect 7 plm-evaluator "$@" "${folder[@]}"
says err 'evaluator.tasks: a: .*/assays is a folder, not a file'
expect 2 plm-pipeline validate -c pipeline.yaml "${folder[@]}"
says err 'evaluator.tasks: a: .*/assays is a folder, not a file'
file=(--set 'evaluator.tasks=[{name: a, kind: contacts, path: t.csv}]')
expect 7 plm-evaluator "$@" "${file[@]}"
says err 'evaluator.tasks: a: .*/t.csv is not a folder'
expect 2 plm-pipeline validate -c pipeline.yaml "${file[@]}"
says err 'evaluator.tasks: a: .*/t.csv is not a folder; contacts need a folder of NAME.fasta and NAME.contacts'
expect 0 plm-pipeline validate -c pipeline.yaml
kill "$packer"
drained "$packer" "the packer"
