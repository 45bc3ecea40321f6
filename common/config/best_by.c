/* Splits TASK.MEASURE. */
#include "common/config/best_by.h"

#include <stddef.h>
#include <string.h>

/* What the lines of each kind of task have (doc/inference.md#tasks). */
static const char *const numbers[] = {"spearman", "pearson", "r2", "rmse", NULL};
static const char *const classes[] = {"accuracy", "macro_f1", "mcc", "auroc", NULL};
static const char *const probes[] = {"spearman", "pearson", "r2",    "rmse", "accuracy",
                                     "macro_f1", "mcc",     "auroc", NULL};
static const char *const assays[] = {"spearman", "auc", "mcc", "ndcg", "top_recall", NULL};
static const char *const contacts[] = {"precision_l", "precision_l2", "precision_l5", NULL};

/* The measures of each kind; those of a probe by its labels, in the order of plm_task_label_names.
 */
static const struct measured {
  const char *kind;
  const char *const *measures;
} by_kind[] = {[PLM_TASK_PROBE] = {"probes have", probes},
               [PLM_TASK_ASSAYS] = {"assays have", assays},
               [PLM_TASK_CONTACTS] = {"contacts have", contacts}},
  by_labels[] = {{NULL, NULL},
                 {"is a regression, which has", numbers},
                 {"is a classification, which has", classes},
                 {"has labels of residues, which have", classes}};

bool plm_measure_falls(const char *measure)
{
  return strcmp(measure, "rmse") == 0;
}

/* The point before the measure; NULL: there is none. Names of tasks may have points too. */
static const char *point_of(const char *text)
{
  return text != NULL ? strrchr(text, '.') : NULL;
}

/* The number of the task; task_count: there is none. */
static uint32_t find_task(const struct plm_config_evaluator *evaluator, const char *text,
                          const char *point)
{
  const size_t length = (size_t)(point - text);
  uint32_t i = 0;
  while (i < evaluator->task_count && (strlen(evaluator->tasks[i].name) != length ||
                                       strncmp(evaluator->tasks[i].name, text, length) != 0))
    i++;
  return i;
}

static const struct measured *measured_by(const struct plm_config_task *task)
{
  return task->kind == PLM_TASK_PROBE && task->labels > 0 ? &by_labels[task->labels]
                                                          : &by_kind[task->kind];
}

bool plm_config_best_by(const struct plm_config *config, uint32_t *task, const char **measure)
{
  const char *text = config->trainer.checkpoint.best_by, *point = point_of(text);
  if (point == NULL) return false;
  *task = find_task(&config->evaluator, text, point);
  if (*task == config->evaluator.task_count) return false;
  const char *const *known = measured_by(&config->evaluator.tasks[*task])->measures;
  while (*known != NULL && strcmp(*known, point + 1) != 0) known++;
  *measure = point + 1;
  return *known != NULL;
}

void plm_config_best_by_fault(const struct plm_config *config, struct plm_text *fault)
{
  const char *text = config->trainer.checkpoint.best_by, *point = point_of(text);
  if (point == NULL) {
    plm_text_printf(fault, "\"%s\" is not TASK.MEASURE, for example stability.spearman", text);
    return;
  }
  const uint32_t number = find_task(&config->evaluator, text, point);
  if (number == config->evaluator.task_count) {
    plm_text_printf(fault, "there is no task \"%.*s\" in evaluator.tasks", (int)(point - text),
                    text);
    return;
  }
  const struct plm_config_task *task = &config->evaluator.tasks[number];
  const struct measured *measured = measured_by(task);
  const bool labelled = measured->measures == numbers || measured->measures == classes;
  if (labelled)
    plm_text_printf(fault, "task \"%s\" %s ", task->name, measured->kind);
  else
    plm_text_printf(fault, "%s no measure \"%s\"; they have ", measured->kind, point + 1);
  for (const char *const *known = measured->measures; *known != NULL; known++)
    plm_text_printf(fault, "%s%s", *known,
                    known[1] == NULL   ? ""
                    : known[2] == NULL ? " and "
                                       : ", ");
  if (labelled) plm_text_printf(fault, ", not %s", point + 1);
}
