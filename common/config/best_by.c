/* Splits TASK.MEASURE. */
#include "common/config/best_by.h"

#include <stddef.h>
#include <string.h>

/* What the lines of each kind of task have (doc/inference.md#tasks). */
static const char *const measures[][9] = {
    [PLM_TASK_PROBE] = {"spearman", "pearson", "r2", "rmse", "accuracy", "macro_f1", "mcc",
                        "auroc"},
    [PLM_TASK_ASSAYS] = {"spearman", "auc", "mcc", "ndcg", "top_recall"},
    [PLM_TASK_CONTACTS] = {"precision_l", "precision_l2", "precision_l5"},
};

bool plm_measure_falls(const char *measure)
{
  return strcmp(measure, "rmse") == 0;
}

bool plm_config_best_by(const struct plm_config *config, uint32_t *task, const char **measure)
{
  const char *text = config->trainer.checkpoint.best_by;
  const char *dot = text != NULL ? strrchr(text, '.') : NULL; /* names of tasks may have dots */
  if (dot == NULL) return false;
  for (uint32_t i = 0; i < config->evaluator.task_count; i++) {
    const struct plm_config_task *candidate = &config->evaluator.tasks[i];
    if (strlen(candidate->name) != (size_t)(dot - text) ||
        strncmp(candidate->name, text, (size_t)(dot - text)) != 0)
      continue;
    const char *const *known = measures[candidate->kind];
    for (size_t k = 0; known[k] != NULL; k++) {
      if (strcmp(known[k], dot + 1) != 0) continue;
      *task = i;
      *measure = dot + 1;
      return true;
    }
  }
  return false;
}
