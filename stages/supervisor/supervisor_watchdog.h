/* Kills stages that hang, so that they are started again. What is expected of a stage:
 *
 *   trainer    a step, or pulse.trainer.json: until its first step, and whenever it waits
 *   evaluator  pulse.evaluator.json
 *   packer     that a consumer lists it, once one has done so and while one reports its packers;
 *              otherwise pulse.packer.N.json
 *
 * The thread that computes writes these files, also while it waits for packers or for a checkpoint
 * to be written. That it waits is only believed as long as it says so.
 *
 * What a stage does while it starts may take longer (supervisor.silent_start_s).
 * All of these are files in the run folder. If nothing can be written there, nothing is expected.
 */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_WATCHDOG_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_WATCHDOG_H

#include <stdint.h>

#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/supervised.h"

struct watchdog {
  struct stages *stages;
  struct screen *screen;
  int64_t looked_ms; /* 0: not yet */
};

/* Called each turn; looks once a second, and not while the stages are being stopped. */
void watchdog_turn(struct watchdog *watchdog, int64_t now_ms);

#endif
