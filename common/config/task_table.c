/* The request for the table of a probe. */
#include "common/config/task_table.h"

struct plm_labelled_request plm_task_table(const struct plm_config *config,
                                           const struct plm_config_task *task)
{
  return (struct plm_labelled_request){
      .path = task->path,
      .sequence_column = task->column,
      .target_column = task->target,
      .split_column = task->split,
      .kind = (enum plm_label_kind)(PLM_LABEL_GUESSED + task->labels),
      .tokenizer = config->data.tokenizer,
  };
}
