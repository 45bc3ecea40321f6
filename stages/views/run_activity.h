/* What a running trainer or evaluator does now, from the run folder: how long its last sign of life
 * is ago, whether it waits, as it says itself, and whether it is silent. It works for every one of
 * them, whoever started it. */
#ifndef PLM_STAGES_VIEWS_RUN_ACTIVITY_H
#define PLM_STAGES_VIEWS_RUN_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/run/run_pulse.h"

enum { PLM_ACTIVITY_TEXT = 128 };

struct plm_activity {
  bool pulsed; /* it has said what it does; a trainer that steps says so if it waits: */
  struct plm_run_sign sign; /* the last time */
  double sign_age_s;        /* since its last sign of life: a step, or what it said */
  bool stepped;             /* this trainer has finished a step: */
  uint64_t step;            /* the last one */
  double age_s;             /* since the last step, or since the trainer started */
  double step_s;            /* median time of the last steps; 0: unknown */
  double rate;              /* tokens a second; falls while no step ends. 0: unknown */
  bool heard; /* it has reported its packers in the last 10 s, as it does every second */
  char word[PLM_ACTIVITY_TEXT]; /* text without its time, the same as long as it lasts */
  char text[PLM_ACTIVITY_TEXT]; /* "waiting for packers 1:00", "no step for 3:05"; "": it trains */
};

/* Of the trainer that has taken trainer.lock last; its age is plm_lock_age_s. */
void plm_activity_read(const char *run, struct plm_activity *activity);
/* Of the evaluator that has taken evaluator.lock last. Of the fields above, it has pulsed, sign,
 * sign_age_s and the texts: "waiting for packers 1:00", "no sign for 3:05:
 * evaluating step 500 (valid)". */
void plm_activity_read_evaluator(const char *run, struct plm_activity *activity);

#endif
