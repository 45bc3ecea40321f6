#!/usr/bin/env bash
# Kills by SIGKILL at several moments: see kill_trainer.sh. In bf16 where that is faster.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume unet auto
