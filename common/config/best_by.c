/* Splits TASK.MEASURE, and knows the measures of tasks and objectives. */
#include "common/config/best_by.h"

#include <stddef.h>
#include <string.h>

#include "common/metrics/measure_table.h"

/* What the lines of each kind of task have (doc/inference.md#tasks). */
static const char *const numbers[] = {PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME) NULL};
static const char *const classes[] = {PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME) NULL};
static const char *const probes[] = {PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME)
                                         PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME) NULL};
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

/* What a line about a split has: of a model of residues, and of one that predicts labels
 * (doc/inference.md#metrics). */
static const char *const of_tokens[] = {"loss", "accuracy", "mcc", NULL};
static const char *const of_numbers[] = {"loss",
                                         PLM_MEASURES_OF_NUMBERS_EACH(PLM_MEASURE_NAME) NULL};
static const char *const of_classes[] = {"loss",
                                         PLM_MEASURES_OF_CLASSES_EACH(PLM_MEASURE_NAME) NULL};

static const char *const *measures_of(const struct plm_config *config)
{
  const enum plm_objective objective = config->trainer.objective;
  if (!plm_objective_is_labels(objective)) return of_tokens;
  return objective == PLM_OBJECTIVE_REGRESSION ? of_numbers : of_classes;
}

/* The measure of the list that is called so; NULL: there is none. */
static const char *find_measure(const char *const *measures, const char *name)
{
  while (*measures != NULL && strcmp(*measures, name) != 0) measures++;
  return *measures;
}

bool plm_objective_lacks(const struct plm_config *config, const char *measure,
                         struct plm_text *fault)
{
  if (find_measure(measures_of(config), measure) != NULL) return false;
  plm_text_printf(fault, "objective %s has ", plm_objective_name(config->trainer.objective));
  plm_text_put_list(fault, measures_of(config), " and ");
  plm_text_printf(fault, ", not %s", measure);
  return true;
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

bool plm_config_best_by(const struct plm_config *config, int32_t *task, const char **measure)
{
  const struct plm_config_stop_when *when = &config->trainer.stop_when;
  const char *text = config->trainer.checkpoint.best_by, *point = point_of(text);
  /* a run that ends by a metric keeps the checkpoint that is the best by it */
  if (text == NULL && when->patience > 0 && when->metric != PLM_STOP_LOSS)
    text = plm_stop_metric_names[when->metric];
  if (text == NULL) return false;
  if (point == NULL) {
    *task = PLM_NO_TASK;
    *measure = find_measure(measures_of(config), text);
    return *measure != NULL;
  }
  const uint32_t number = find_task(&config->evaluator, text, point);
  if (number == config->evaluator.task_count) return false;
  *task = (int32_t)number;
  *measure = find_measure(measured_by(&config->evaluator.tasks[number])->measures, point + 1);
  return *measure != NULL;
}

void plm_config_best_by_fault(const struct plm_config *config, struct plm_text *fault)
{
  const char *text = config->trainer.checkpoint.best_by, *point = point_of(text);
  if (point == NULL) {
    (void)plm_objective_lacks(config, text, fault);
    plm_text_puts(fault, "; a task is judged by TASK.MEASURE, for example stability.spearman");
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
  plm_text_put_list(fault, measured->measures, " and ");
  if (labelled) plm_text_printf(fault, ", not %s", point + 1);
}
