/* Whether a step that was overtaken by a stop signal can still end in time. */
#ifndef PLM_TRAINER_GRACE_H
#define PLM_TRAINER_GRACE_H

#include <stdbool.h>
#include <stdint.h>

struct plm_grace {
  double limit_s;       /* trainer.stop_timeout_s */
  double since_stop_s;  /* at most this long ago the signal came */
  double step_s;        /* the step has run for this long */
  double last_step_s;   /* the step before took this long; 0: there was none */
  double publish_s;     /* the last checkpoint took this long to write */
  uint32_t done, total; /* micro-batches */
};

/* True when the rest of the step, judged by the last one, and a checkpoint no longer fit. */
bool plm_grace_is_short(const struct plm_grace *grace);

#endif
