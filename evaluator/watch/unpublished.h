/* Why a checkpoint that was due is not there: the trainer keeps in each checkpoint which earlier
 * ones could not be published. */
#ifndef PLM_EVALUATOR_WATCH_UNPUBLISHED_H
#define PLM_EVALUATOR_WATCH_UNPUBLISHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Asks trainer.json of a later checkpoint. true: `step` could not be published then, and why (cut
 * to size) is the trainer's reason. A file that cannot be read knows nothing. */
bool plm_unpublished(const char *later_checkpoint, uint64_t step, char *why, size_t size);

#endif
