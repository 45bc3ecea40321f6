#!/usr/bin/env bash
# Kills by SIGKILL at several moments: see kill_trainer.sh. In bf16 where that is faster. A rehearsal of `make gpu-check`
# names fewer moments (PLM_TEST_MOMENTS).
. "$PLM_ROOT/tests/chaos/kill_trainer.sh"
kill_and_resume unet auto "${PLM_TEST_MOMENTS:-}"
