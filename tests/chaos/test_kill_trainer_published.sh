#!/usr/bin/env bash
# Kills by SIGKILL between two steps and while a checkpoint is published: see kill_trainer.sh. The architectures of
# published weights have parameters of their own, so two moments are enough.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume esm2 fp32 'lines 27
publishing step_00000040'
rm -rf "$PLM_TMP/reference" "$PLM_TMP/killed"
trainer_config esmc
kill_and_compare esmc 'lines 27
publishing step_00000040'
