/* Whether a stage still gives signs of life: a pure function of what is seen of it. */
#ifndef PLM_STAGES_SUPERVISOR_STAGE_STAGE_PULSE_H
#define PLM_STAGES_SUPERVISOR_STAGE_STAGE_PULSE_H

#include <stdbool.h>
#include <stdint.h>

struct plm_pulse { /* {0}: not looked at yet */
  bool begun;
  int64_t since_ms; /* when it last gave a sign, or was first looked at; monotonic */
  uint64_t mark;
};

/* Looks at a stage. mark: any number that changes with each sign of life. True if the last sign is
 * limit_ms ago or longer; never if limit_ms is 0. */
bool plm_pulse_is_lost(struct plm_pulse *pulse, int64_t now_ms, uint64_t mark, int64_t limit_ms);

#endif
