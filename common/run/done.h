/* DONE, the file which says that a run is complete, at which checkpoint, and what ended it. */
#ifndef PLM_COMMON_RUN_DONE_H
#define PLM_COMMON_RUN_DONE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"

struct plm_done {
  uint64_t step;            /* of the last checkpoint */
  struct plm_hash identity; /* of its weights */
  /* The trainer.stop_when that ended the run. patience 0: all its steps are done. */
  char metric[16];
  uint32_t patience;
};

plm_status plm_done_write(const char *run, const struct plm_done *done, struct plm_error *error);
/* PLM_NOT_FOUND: there is no such file. PLM_FORMAT. */
plm_status plm_done_read(const char *run, struct plm_done *done, struct plm_error *error);

enum { PLM_DONE_WHY_SIZE = 96 };
/* Whether a run with this DONE is complete under a configuration's trainer.steps and metric and
 * patience of trainer.stop_when. A run that stop_when ended stays so, whatever the evaluator has
 * reported since, until another metric or a larger patience is configured, or none. If it is not
 * complete, *why is what changed, as part of a sentence. */
bool plm_done_holds(const struct plm_done *done, uint64_t steps, const char *metric,
                    uint32_t patience, char why[PLM_DONE_WHY_SIZE]);

#endif
