#!/usr/bin/env bash
# `plm-pipeline metrics`: every field of a stage has a column, -f follows the file, and each kind of run shows its own
# measures on a terminal. Tables, CSV, JSON and what is refused: test_command_metrics.c.
. "$PLM_ROOT/tests/support/shell/lib.sh"
mkdir run
cat >run/packers.jsonl <<'END'
{"v":1,"packer":"a-host.of.some.length:4711","windows":3,"documents_per_second":12.5,"tokens_per_second":4096,"padding_fraction":0.25,"queue":0,"time":1}
END
cat >run/evaluator.jsonl <<'END'
{"v":1,"step":8,"checkpoint":"checkpoints/step_00000008","split":"valid","weights":"ema","loss":-0.00000123456789,"loss_by_length":{"0":1},"time":1}
{"v":1,"step":12,"skipped":"does not verify or load: \"loss\", with a comma, and more words than sixty characters","time":2}
END
cat >run/trainer.jsonl <<'END'
{"v":1,"step":9,"loss":2.5,"exact":false}
END

# ---- the default columns are metrics of the stage --------------------------------------------------
for stage in trainer evaluator packer; do
  expect 0 plm-pipeline metrics "$stage" --run run --csv
  expect 0 plm-pipeline metrics "$stage" --run run --keys "$(head -n 1 out)"
done
expect 0 plm-pipeline metrics packer --run run --csv
diff - out <<'END' || fail "a packer's columns"
windows,documents_per_second,tokens_per_second,padding_fraction,queue,packer
3,12.5,4096,0.25,0,a-host.of.some.length:4711
END

expect 2 plm-pipeline metrics --run run --keys loss_by/0
says err 'no metric "loss_by/0"'

expect 2 plm-pipeline metrics --run run --keys instance
says err 'no metric "instance"'
# ---- curves by source; others: test_command_metrics.c ----
mkdir second
cat >second/trainer.jsonl <<'END'
{"v":1,"step":1,"tokens_by_source":{"a":70,"b":30},"loss_by_source":{"a":3,"b":null}}
{"v":1,"step":2,"tokens_by_source":{"a":60,"b":40},"loss_by_source":{"a":2.5,"b":2}}
END
expect 0 plm-pipeline metrics trainer --run second --plot \
  --keys 'loss_by_source/b,loss_by_source,tokens_by_source,tokens_by_source/*'
grep ' - ' out >headings
diff - headings <<'END' || fail "the headings of curves by source"
          loss_by_source/b  - second
          loss_by_source  - second a  - second b
          tokens_by_source  - second
          tokens_by_source/*  - second a  - second b
END
expect 0 plm-pipeline metrics trainer --run run --plot --keys grad_norm
says out '^ {10}no values yet$'

# ---- -f: prints lines as they come, reads a shrunk file again, and ends with a signal ------------------
# follow NAME COMMAND…: runs it in the background, with the output in ./NAME; its process is $follower
follow() {
  local name=$1
  shift
  "$@" >"$name" 2>"$name.err" &
  follower=$!
}

# holds FILE LINES…: the file has exactly these lines
holds() { [ "$(tr -d '\r' <"$1")" = "$(printf '%s\n' "${@:2}")" ]; }

# stops NAME SIGNAL CODE: after the signal, the follower ends with this code
stops() {
  local code=0
  kill -"$2" "$follower"
  wait "$follower" || code=$?
  [ "$code" -eq "$3" ] || fail "metrics -f ends with $code after SIG$2: $(cat "$1.err")"
}

line() { printf '{"v":1,"step":%d,"split":"valid","loss":%s}\n' "$1" "$2"; }

mkdir grows
follow json plm-pipeline metrics -f --run grows --keys step,loss # before the file exists
line 100 2.5 >grows/evaluator.jsonl
wait_for 30 holds json '{"step":100,"loss":2.5}'
printf '{"v":1,"step":200,"spl' >>grows/evaluator.jsonl
printf 'it":"valid","loss":2.25}\n' >>grows/evaluator.jsonl
line 300 2.125 >>grows/evaluator.jsonl
wait_for 30 holds json '{"step":100,"loss":2.5}' '{"step":200,"loss":2.25}' '{"step":300,"loss":2.125}'
# a resume truncates the file and writes the following lines again
truncate -s "$(head -n 1 grows/evaluator.jsonl | wc -c)" grows/evaluator.jsonl
line 200 2.375 >>grows/evaluator.jsonl
wait_for 30 holds json '{"step":100,"loss":2.5}' '{"step":200,"loss":2.25}' '{"step":300,"loss":2.125}' \
  '{"step":200,"loss":2.375}'
stops json INT 130

follow csv plm-pipeline metrics -f --run grows --keys step,loss --csv
wait_for 30 holds csv step,loss 100,2.5 200,2.375
line 300 1.5 >>grows/evaluator.jsonl
wait_for 30 holds csv step,loss 100,2.5 200,2.375 300,1.5
stops csv TERM 143

# ---- the table on a terminal ------------------------------------------------------------------------
command -v script >/dev/null || { echo "no script(1): the table was not looked at"; exit 0; }
table() { script -qec "$*" /dev/null </dev/null | tr -d '\r' >out; }
table plm-pipeline metrics packer --run run
says out ' packer$'
says out ' a-host.of.some.length:4711$'
table plm-pipeline metrics --run run --keys step,loss,weights
says out '^ +8 +-1.23457e-06 +ema$'
says out '^ +12  skipped: does not verify'
table 'stty cols 80; plm-pipeline metrics --run run' # no line is wider than the terminal
says out '^ +step +split +loss$' # columns that are empty in all lines are left out
says out '^ +8 +valid +-1.23457e-06$'
# each kind of run shows its own measures: those of the language model, of numbers and of classes
line='"step":4,"split":"valid","seconds":1,"lag_steps":0,"set":"corpus","loss"'
task='"step":4,"split":"test","seconds":1,"lag_steps":0'
mkdir model numbers classes tasks
echo "{$line:2.5,\"perplexity\":12.1825,\"accuracy\":0.25,\"baseline_entropy\":2.875,\"mcc\":0.125,\"tokens\":99}" >model/evaluator.jsonl
printf '{%s:0.5,"spearman":%s,"pearson":0.5,"r2":0.375,"rmse":1.25,"labels":9}\n' "$line" null "$line" 0.75 >numbers/evaluator.jsonl
echo "{$line:0.5,\"accuracy\":0.75,\"macro_f1\":0.625,\"mcc\":0.5,\"auroc\":0.875,\"labels\":9}" >classes/evaluator.jsonl
says_columns() { # says_columns COLUMNS RUN…: the head of the table of these runs
  table "stty cols 300; plm-pipeline metrics$(printf ' --run %s' "${@:2}")"
  [ "$(head -n 1 out | xargs)" = "$1" ] || fail "the columns of ${*:2}: $(head -n 1 out)"
}
says_columns 'step split loss perplexity accuracy baseline_entropy mcc tokens seconds lag_steps set' model
says_columns 'step split loss accuracy macro_f1 auroc mcc labels seconds lag_steps set' classes
says_columns 'step split loss spearman r2 rmse pearson labels seconds lag_steps set' numbers
[ "$(tail -n 1 out | xargs)" = '4 valid 0.5 0.75 0.375 1.25 0.5 9 1 0 corpus' ] || fail "numbers: $(tail -n 1 out)"
# tasks of a language model: assays and contacts
cat >tasks/evaluator.jsonl <<END
{$line:0.5,"perplexity":1.625,"accuracy":0.75}
{$task,"set":"gym","spearman":0.5,"auc":0.75,"mcc":0.25,"ndcg":0.5,"top_recall":0.125}
{$task,"set":"folds","precision_l":0.5,"precision_l2":0.625,"precision_l5":0.75,"chance":0.03125}
END
measures='spearman precision_l mcc auc ndcg top_recall precision_l2 precision_l5 chance'
says_columns "step split loss perplexity accuracy $measures seconds lag_steps set" tasks
[ "$(tail -n 1 out | xargs)" = '4 folds test 0.5 0.625 0.75 0.03125 1 0 folds' ] || fail "contacts: $(tail -n 1 out)"
says_columns 'run step split loss accuracy spearman r2 rmse macro_f1 auroc mcc pearson labels seconds lag_steps set' numbers classes
table 'stty cols 80; plm-pipeline metrics --run numbers'
[ "$(head -n 1 out | xargs)" = 'step split loss spearman r2 rmse' ] || fail "numbers at 80 columns: $(head -n 1 out)"
follow screen script -qefc 'echo $$ >pid; exec plm-pipeline metrics -f --run grows --keys step,loss' /dev/null
wait_for 30 grep -qE '^ +300 +1.5' screen
line 400 1.25 >>grows/evaluator.jsonl
wait_for 30 grep -qE '^ +400 +1.25' screen
[ "$(grep -c 'step' screen)" = 1 ] || fail "the head line is repeated: $(cat screen)"
kill -INT "$(cat pid)"
code=0
wait "$follower" || code=$?
[ "$code" -eq 130 ] || fail "metrics -f on a terminal ends with $code after SIGINT"
