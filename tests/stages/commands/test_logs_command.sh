#!/usr/bin/env bash
# `plm-pipeline logs`: which logs and lines it prints, and what stands before each line. That it merges them by time:
# test_command_line.sh.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}

mkdir -p run/logs empty/logs
at() { echo "2026-11-21T10:00:0$1.000Z $2"; }
{ at 1 'plm-trainer: one'; at 4 'plm-trainer: four'; echo '  more of four'; } >run/logs/trainer.0.log
{ at 2 'plm-packer: two'; at 4 'plm-packer: four'; at 5 $'a \033[31mred word'; } >run/logs/packer.0.log
at 3 'plm-packer: three' >run/logs/packer.10.log
at 6 'mpirun: six' >run/logs/trainer.mpi.log
long=$(printf 'x%.0s' {1..56})
at 7 'of a long name' >"run/logs/$long.log"  # 60 bytes
at 8 'of a name that is too long' >"run/logs/y$long.log"
for name in .log other.txt notes.log.1 log; do echo 'not a log' >run/logs/$name; done
show() { plm-pipeline logs --run run "$@"; }

prints 0 show <<END
trainer.0   | 2026-11-21T10:00:01.000Z plm-trainer: one
packer.0    | 2026-11-21T10:00:02.000Z plm-packer: two
packer.10   | 2026-11-21T10:00:03.000Z plm-packer: three
trainer.0   | 2026-11-21T10:00:04.000Z plm-trainer: four
trainer.0   |   more of four
packer.0    | 2026-11-21T10:00:04.000Z plm-packer: four
packer.0    | 2026-11-21T10:00:05.000Z a \\x1b[31mred word
trainer.mpi | 2026-11-21T10:00:06.000Z mpirun: six
$long | 2026-11-21T10:00:07.000Z of a long name
END
cp wanted all

# ---- stages and instances ----
prints 0 show packer.10 <<<'2026-11-21T10:00:03.000Z plm-packer: three'
prints 0 show packer.0 trainer.mpi <<'END'
packer.0    | 2026-11-21T10:00:02.000Z plm-packer: two
packer.0    | 2026-11-21T10:00:04.000Z plm-packer: four
packer.0    | 2026-11-21T10:00:05.000Z a \x1b[31mred word
trainer.mpi | 2026-11-21T10:00:06.000Z mpirun: six
END
prints 0 show packer < <(grep ^packer all)
prints 0 show trainer packer < <(grep -E '^(packer|trainer)' all)
expect 1 show evaluator
says err '^plm-pipeline: there is no log of "evaluator" in .*/run/logs$'
expect 1 show pack
expect 1 show packer.1
prints 0 plm-pipeline logs --run empty </dev/null
expect 1 plm-pipeline logs --run nowhere
says err '^plm-pipeline: there are no logs in .*/nowhere/logs: No such file or directory$'

# ---- the last lines of each log ----
prints 0 show --tail 0 </dev/null
prints 0 show --tail 1 trainer packer <<'END'
trainer.0   |   more of four
packer.10   | 2026-11-21T10:00:03.000Z plm-packer: three
packer.0    | 2026-11-21T10:00:05.000Z a \x1b[31mred word
trainer.mpi | 2026-11-21T10:00:06.000Z mpirun: six
END
prints 0 show --tail 2 packer.0 <<'END'
2026-11-21T10:00:04.000Z plm-packer: four
2026-11-21T10:00:05.000Z a \x1b[31mred word
END
prints 0 show --tail 18446744073709551615 <all
expect 2 show --tail x
says err 'option "--tail" needs a whole number, not "x"'

# ---- a run that is over is followed to its end; then each line of all stages names its log ----
prints 0 show -f <all
prints 0 show -f packer.10 <<<'2026-11-21T10:00:03.000Z plm-packer: three'
mkdir -p one/logs
at 1 'one' >one/logs/trainer.0.log
printf 'no end yet' >>one/logs/trainer.0.log
prints 0 plm-pipeline logs --run one <<'END'
2026-11-21T10:00:01.000Z one
no end yet
END
prints 0 plm-pipeline logs --run one -f <<'END'
trainer.0   | 2026-11-21T10:00:01.000Z one
trainer.0   | no end yet
END

# ---- colors, by the first letter of the stage ----
at 1 'e' >one/logs/evaluator.0.log
at 1 's' >one/logs/supervisor.log
at 1 'p' >one/logs/packer.0.log
rm one/logs/trainer.0.log
at 1 't' >one/logs/trainer.0.log
prints 0 plm-pipeline logs --run one --color always <<END
$(printf '\033[36m')evaluator.0 |$(printf '\033[0m') 2026-11-21T10:00:01.000Z e
$(printf '\033[32m')packer.0    |$(printf '\033[0m') 2026-11-21T10:00:01.000Z p
$(printf '\033[35m')supervisor  |$(printf '\033[0m') 2026-11-21T10:00:01.000Z s
$(printf '\033[32m')trainer.0   |$(printf '\033[0m') 2026-11-21T10:00:01.000Z t
END
