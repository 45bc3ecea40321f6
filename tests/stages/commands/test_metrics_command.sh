#!/usr/bin/env bash
# `plm-pipeline metrics`: every field of a stage has a column, words and numbers come out whole, -f
# follows the file, and a table fits the terminal.
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

# ---- fields that are words --------------------------------------------------------------------------
expect 0 plm-pipeline metrics --run run --csv --keys step,checkpoint,skipped
diff - out <<'END' || fail "words in CSV"
step,checkpoint,skipped
8,checkpoints/step_00000008,
12,,"does not verify or load: ""loss"", with a comma, and more words than sixty characters"
END
expect 0 plm-pipeline metrics trainer --run run --csv --keys step,exact,loss
says out '^9,false,2.5$'
expect 0 plm-pipeline metrics trainer --run run --keys exact
says out '^\{"exact":false\}$'
# ---- parts of a field -------------------------------------------------------------------------------
expect 0 plm-pipeline metrics --run run --csv --keys step,loss_by_length/0,loss_by_length/9
diff - out <<'END' || fail "parts in CSV"
step,loss_by_length/0,loss_by_length/9
8,1,
12,,
END
expect 0 plm-pipeline metrics --run run --keys loss_by_length/0
says out '^\{"loss_by_length/0":1\}$'
expect 2 plm-pipeline metrics --run run --keys loss_by/0
says err 'no metric "loss_by/0"'

expect 2 plm-pipeline metrics --run run --keys instance
says err 'no metric "instance"'
expect 2 plm-pipeline metrics --run run --keys ,
says err 'names no field'

# ---- several runs: each line names its run -------------------------------------------------------------
mkdir other
echo '{"v":1,"step":8,"split":"valid","loss":2.0000000000000004}' >other/evaluator.jsonl
mkdir few
echo '{"v":1,"step":7,"split":"valid","loss":0.1,"accuracy":0.30000000000000004,"mcc":1e-7}' >few/evaluator.jsonl
expect 0 plm-pipeline metrics --run few --csv --keys step,loss,accuracy,mcc
[ "$(tail -n 1 out)" = 7,0.1,0.30000000000000004,1e-07 ] || fail "digits that nobody needs: $(cat out)"
expect 0 plm-pipeline metrics --run run --run other --csv --keys step,loss
sort out | diff - <(printf '%s\n' other,8,2.0000000000000004 run,12, run,8,-1.23456789e-06 run,step,loss | sort) || fail "two runs in CSV"
[ "$(head -n 1 out)" = run,step,loss ] || fail "the head of two runs"
expect 0 plm-pipeline metrics --run run --run other
says out '^\{"run":"other","v":1,"step":8,"split":"valid","loss":2.0000000000000004\}$'
[ "$(jq -r .run out | sort | tr '\n' ' ')" = 'other run run ' ] || fail "the runs of lines of JSON: $(cat out)"
expect 0 plm-pipeline metrics --run run --run other --keys loss
says out '^\{"run":"other","loss":2.0000000000000004\}$'
mkdir bare && echo '{}' >bare/evaluator.jsonl
expect 0 plm-pipeline metrics --run bare --run other
says out '^\{"run":"bare"\}$'
expect 0 plm-pipeline metrics --run run --run other --plot
says out 'loss  - run  - other'

# ---- limits, and what is not there ------------------------------------------------------------------------
many() { printf "$1,%.0s" $(seq "$2") | sed 's/,$//'; }
expect 0 plm-pipeline metrics --run run --keys "$(many loss 32)"
expect 2 plm-pipeline metrics --run run --keys "$(many loss 33)"
says err '^plm-pipeline: --keys names more than 32 fields$'
expect 2 plm-pipeline metrics --run run --keys "$(printf '%0600d' 0)"
says err "the evaluator has no metric \"0000"
runs=()
for i in $(seq 16); do mkdir "r$i"; runs+=(--run "r$i"); done
expect 0 plm-pipeline metrics "${runs[@]}"
says err '^plm-pipeline: no metrics of the evaluator yet in r1$'
expect 0 plm-pipeline metrics "${runs[@]}" -q
[ ! -s err ] || fail "metrics -q says: $(cat err)"
expect 2 plm-pipeline metrics "${runs[@]}" --run run
says err '^plm-pipeline: --run is given more than 16 times$'
expect 1 plm-pipeline metrics --run run --run nowhere
says err '^plm-pipeline: there is no run folder nowhere$'
expect 2 plm-pipeline metrics trainr --run run
says err '"trainr" is not a stage; the stages are evaluator, trainer and packer$'
expect 2 plm-pipeline metrics packer --run run --keys loss
says err '^  its metrics are packer windows documents_per_second tokens_per_second padding_fraction queue time$'
expect 0 plm-pipeline metrics trainer --run run --json
diff run/trainer.jsonl out || fail "lines of JSON are not those of the file"
expect 0 plm-pipeline metrics --run run --keys step,loss_by_length,skipped
diff - out <<'END' || fail "chosen fields of JSON"
{"step":8,"loss_by_length":{"0":1}}
{"step":12,"skipped":"does not verify or load: \"loss\", with a comma, and more words than sixty characters"}
END

# ---- curves: one for each run and split, and the level of the residues' composition ---------------------------
mkdir first second
for i in 1 2 3 4; do
  echo "{\"step\":$i,\"split\":\"valid\",\"loss\":$((9 - i)),\"accuracy\":0.$i,\"baseline_entropy\":2.5}"
  [ $i -lt 3 ] || echo "{\"step\":$i,\"split\":\"test\",\"loss\":$((8 - i))}"
done >first/evaluator.jsonl
echo '{"step":2,"split":"valid","loss":5,"accuracy":0.5}' >second/evaluator.jsonl
expect 0 plm-pipeline metrics --run ./first --run second --plot --keys loss,accuracy
grep ' - ' out >headings
diff - headings <<'END' || fail "the headings of curves"
          loss  - first valid  - first test  - second  (.. composition only 2.5)
          accuracy  - first  - second
END
[ "$(wc -l <out)" -eq 38 ] || fail "two plots have $(wc -l <out) lines"
[ "$(LC_ALL=C.UTF-8 wc -L <out)" -eq 100 ] || fail "a plot is $(LC_ALL=C.UTF-8 wc -L <out) columns wide"
expect 0 plm-pipeline metrics --run ./first --plot
says out '^ {10}loss  - first valid  - first test  \(\.\. composition only 2\.5\)$'
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
table plm-pipeline metrics --run run --run other --keys step,loss
says out '^ +run +step +loss$'
says out '^  other +8 +2$'
says out '^ +run +12  skipped: does'
table 'stty cols 80; plm-pipeline metrics --run run' # no line is wider than the terminal
says out '^ +step +split +loss$' # columns that are empty in all lines are left out
says out '^ +8 +valid +-1.23457e-06$'
# each kind of run shows its own measures: those of the language model, of numbers and of classes
line='"step":4,"split":"valid","seconds":1,"lag_steps":0,"set":"corpus","loss"'
mkdir model numbers classes
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
says_columns 'run step split loss accuracy spearman r2 rmse macro_f1 auroc mcc pearson labels seconds lag_steps set' numbers classes
table 'stty cols 80; plm-pipeline metrics --run numbers'
[ "$(head -n 1 out | xargs)" = 'step split loss spearman r2 rmse' ] || fail "numbers at 80 columns: $(head -n 1 out)"
for i in $(seq 81); do echo "{\"step\":$i,\"loss\":0.5,\"exact\":true,\"set\":7,\"lr_hidden\":1,\"tokens_per_second\":9}"; done >grows/trainer.jsonl # a head every 40 lines
table 'stty cols 80; plm-pipeline metrics trainer --run grows --keys step,exact,loss'
[ "$(grep -n step out | cut -d: -f1 | paste -sd' ')" = '1 42 83' ] || fail "heads: $(grep -n step out)"
[ "$(sed -n 2p out)" = '           1        true         0.5' ] || fail "a row: $(sed -n 2p out)"
columns_at() { table "stty cols $1; plm-pipeline metrics trainer --run grows" && head -n 1 out | tr -s ' ' | xargs | tr ' ' ,; }
[ "$(columns_at 36)" = step,loss,lr_hidden ] || fail "columns at 36: $(columns_at 36)"
[ "$(columns_at 35)" = step,loss ] || fail "columns at 35: $(columns_at 35)"
[ "$(columns_at 55)" = step,loss,lr_hidden,tokens_per_second ] || fail "columns at 55: $(columns_at 55)"
[ "$(columns_at 54)" = step,loss,lr_hidden ] || fail "columns at 54: $(columns_at 54)"
[ "$(columns_at 5)" = "$(columns_at 500)" ] || fail "a very narrow table: $(columns_at 5)"
follow screen script -qefc 'echo $$ >pid; exec plm-pipeline metrics -f --run grows --keys step,loss' /dev/null
wait_for 30 grep -qE '^ +300 +1.5' screen
line 400 1.25 >>grows/evaluator.jsonl
wait_for 30 grep -qE '^ +400 +1.25' screen
[ "$(grep -c 'step' screen)" = 1 ] || fail "the head line is repeated: $(cat screen)"
kill -INT "$(cat pid)"
code=0
wait "$follower" || code=$?
[ "$code" -eq 130 ] || fail "metrics -f on a terminal ends with $code after SIGINT"
