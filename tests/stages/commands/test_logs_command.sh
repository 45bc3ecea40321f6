#!/usr/bin/env bash
# `plm-pipeline logs`: a run that is over is followed to its end, and stages have colors. Which logs and lines it prints:
# test_command_logs.c.
. "$PLM_ROOT/tests/support/shell/lib.sh"

# prints CODE COMMAND…: the exit code, and standard output is what stands on standard input
prints() {
  cat >wanted
  expect "$@"
  diff wanted out || fail "it printed something else: ${*:2}"
}

mkdir -p run/logs
at() { echo "2026-11-21T10:00:0$1.000Z $2"; }
{ at 1 'plm-trainer: one'; at 4 'plm-trainer: four'; echo '  more of four'; } >run/logs/trainer.0.log
at 3 'plm-packer: three' >run/logs/packer.10.log
at 6 'mpirun: six' >run/logs/trainer.mpi.log
show() { plm-pipeline logs --run run "$@"; }
cat >all <<'END'
trainer.0   | 2026-11-21T10:00:01.000Z plm-trainer: one
packer.10   | 2026-11-21T10:00:03.000Z plm-packer: three
trainer.0   | 2026-11-21T10:00:04.000Z plm-trainer: four
trainer.0   |   more of four
trainer.mpi | 2026-11-21T10:00:06.000Z mpirun: six
END
prints 0 show --tail 18446744073709551615 <all
expect 2 show --tail x
says err 'option "--tail" needs a whole number, not "x"'

# ---- a run that is over is followed to its end; then each line of all stages names its log ----
prints 0 show -f <all
prints 0 show -f packer.10 <<<'2026-11-21T10:00:03.000Z plm-packer: three'

# ---- colors, by the first letter of the stage ----
mkdir -p one/logs
at 1 'e' >one/logs/evaluator.0.log
at 1 's' >one/logs/supervisor.log
at 1 'p' >one/logs/packer.0.log
at 1 't' >one/logs/trainer.0.log
prints 0 plm-pipeline logs --run one --color always <<END
$(printf '\033[36m')evaluator.0 |$(printf '\033[0m') 2026-11-21T10:00:01.000Z e
$(printf '\033[32m')packer.0    |$(printf '\033[0m') 2026-11-21T10:00:01.000Z p
$(printf '\033[35m')supervisor  |$(printf '\033[0m') 2026-11-21T10:00:01.000Z s
$(printf '\033[32m')trainer.0   |$(printf '\033[0m') 2026-11-21T10:00:01.000Z t
END
