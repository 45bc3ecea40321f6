#!/usr/bin/env bash
# Kills by SIGKILL at several moments: see kill_trainer.sh.
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume patch_unet
