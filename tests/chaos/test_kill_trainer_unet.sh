#!/usr/bin/env bash
# SIGKILL at several moments: see kill_trainer.sh.
. "$(dirname "$0")/kill_trainer.sh"
kill_and_resume unet
