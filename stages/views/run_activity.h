/* What a running trainer does now, from the run folder: how long its last step is ago, and whether
 * it waits for packers, writes a checkpoint or is silent. It works for every trainer, whoever
 * started it. */
#ifndef PLM_STAGES_VIEWS_RUN_ACTIVITY_H
#define PLM_STAGES_VIEWS_RUN_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLM_ACTIVITY_TEXT = 64 };

struct plm_activity {
  bool stepped;   /* this trainer has finished a step: */
  uint64_t step;  /* the last one */
  double age_s;   /* since the last step, or since the trainer started */
  double step_s;  /* median time of the last steps; 0: unknown */
  double rate;    /* tokens a second; falls while no step ends. 0: unknown */
  bool heard;     /* it has reported its packers in the last 10 s, as it does every second: */
  size_t packers; /* how many serve it */
  bool saves;     /* a checkpoint is being written */
  char text[PLM_ACTIVITY_TEXT]; /* "waiting for packers 1:00", "no step for 3:05"; "": it trains */
};

/* Of the trainer that has taken trainer.lock last; its age is plm_lock_age_s. */
void plm_activity_read(const char *run, struct plm_activity *activity);

#endif
