/* What tasks share that take several checkpoints, one row or object each. */
#ifndef PLM_EVALUATOR_TASK_TASK_CHECKPOINTS_H
#define PLM_EVALUATOR_TASK_TASK_CHECKPOINTS_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cli/options.h"
#include "common/inference/inference.h"

/* How often --checkpoint is given. */
size_t plm_task_checkpoint_count(const struct plm_arguments *arguments);

/* Opens the trunk of each --checkpoint, with --weights, calls `each`, and closes it again, until
 * one fails. */
plm_status plm_task_each_checkpoint(const struct plm_arguments *arguments, uint32_t batch_tokens,
                                    struct plm_ops *ops,
                                    plm_status (*each)(void *context, const char *checkpoint,
                                                       struct plm_inference *inference,
                                                       struct plm_error *error),
                                    void *context, struct plm_error *error);

/* The object for the measures of a checkpoint, with its name and its weights: the line itself if
 * there is a single one, otherwise a new one in its array `checkpoints`. */
cJSON *plm_task_checkpoint_object(cJSON *line, size_t checkpoints, const char *checkpoint,
                                  const struct plm_inference *inference);

#endif
