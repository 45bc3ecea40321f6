#!/usr/bin/env bash
# `report` of a run that was resumed: it shows what the run was trained with, marks what changed and when, and a start
# that trains nothing changes no record of the training.
. "$PLM_ROOT/tests/support/shell/lib.sh"

small_corpus corpus
small_config pipeline.yaml transformer
up() { expect 0 plm-pipeline up pipeline.yaml "$@"; }
report() { expect 0 plm-pipeline report run --output page.html -q; }
setting() { sed -n "s/^  $1: //p" run/pipeline.yaml; }

up --set trainer.steps=4
report
grep -q 'class="mark' page.html && fail "a mark without a resume"
[ "$(jq -s 'map(select(has("resumed"))) | length' run/trainer.jsonl)" -eq 0 ] || fail "a fresh run is not resumed"

# ---- the run is complete: no step runs, so training keeps its record; what the evaluator does may change ----
up --set trainer.steps=4 --set trainer.optimizer.lr_embed=0.7714285 --set trainer.schedule.warmup_steps=1 --set evaluator.seed=3
says err '^plm-pipeline: no step runs, so these changes have no effect and are not recorded:$'
grep -q '0\.7714285' run/pipeline.yaml && fail "pipeline.yaml has a rate that was never trained with"
[ "$(setting seed)" = 3 ] || fail "evaluator.seed: $(setting seed)"
report
grep -q '0\.7714285' page.html && fail "the page shows a rate that was never trained with"
expect 0 plm-pipeline up pipeline.yaml evaluator --set trainer.steps=6 --set trainer.optimizer.lr_embed=0.7714285 --dry-run
says err '^plm-pipeline: no step runs, so these changes have no effect and are not recorded:$'

# ---- a resume that changes something, and one that does not ----
up --set trainer.steps=8 --set trainer.optimizer.lr_embed=0.02
says err '^plm-pipeline: the resumed run differs from before:$'
[ "$(setting steps)" = 8 ] || fail "the record has $(setting steps) steps"
says run/pipeline.yaml '^    lr_embed: 0\.02$'
report
says page.html '<th scope="row">4</th><td>run</td><td>trainer\.steps: 4 -&gt; 8</td>'
says page.html '<th scope="row">4</th><td>run</td><td>trainer\.optimizer\.lr_embed: 0\.01 -&gt; 0\.02</td>'
says page.html '<title>run, after step 4: trainer\.steps: 4 -&gt; 8; trainer\.optimizer\.lr_embed: 0\.01 -&gt; 0\.02</title>'
says page.html '<th scope="row">trainer\.optimizer\.lr_embed</th><td>0\.02</td>'
rm -r run/DONE run/checkpoints/step_00000008
up --set trainer.steps=8 --set trainer.optimizer.lr_embed=0.02 # from step 4 again
[ "$(jq -sc 'map(select(has("resumed")) | [.step, .resumed])' run/trainer.jsonl)" = '[[5,4]]' ] || fail "the resume in the metrics"
printf 'x' | dd of=run/checkpoints/step_00000008/model.safetensors bs=1 seek=5000 conv=notrunc status=none
rm run/DONE
cp run/pipeline.yaml before.yaml
sed -i 's/^  steps: 8/  steps: 5/' run/pipeline.yaml # a start that was stopped before it trained
report
says page.html '<th scope="row">trainer\.steps</th><td>8</td>'
