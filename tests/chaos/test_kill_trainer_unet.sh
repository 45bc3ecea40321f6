#!/usr/bin/env bash
# Kills by SIGKILL at several moments: see kill_trainer.sh. In bf16 if the processor has it.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume unet auto
