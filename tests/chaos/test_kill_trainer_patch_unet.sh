#!/usr/bin/env bash
# Kills by SIGKILL between two steps and while a checkpoint is published: see kill_trainer.sh. What differs from other
# architectures is the state that is saved, so two moments are enough.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume patch_unet fp32 'lines 27
publishing step_00000040'
