/* Decides which checkpoints are kept, and reads the evaluator's reports for that. */
#include "common/checkpoint/retention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/evaluator_report.h"
#include "common/checkpoint/history.h"
#include "common/config/best_by.h"
#include "common/config/config.h"
#include "common/metrics/measure_table.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"

const char *const plm_kept_names[PLM_KEPT_COUNT] = {"newest", "last", "best", "every",
                                                    "not evaluated"};

static bool among_best(const struct plm_retained *checkpoints, size_t count, size_t i,
                       uint32_t keep_best)
{
  if (isnan(checkpoints[i].value)) return false;
  size_t better = 0; /* of equal values, the first is better, as for trainer.stop_when */
  for (size_t j = 0; j < count; j++)
    better += checkpoints[j].value < checkpoints[i].value ||
              (checkpoints[j].value == checkpoints[i].value && j < i);
  return better < keep_best;
}

static unsigned reasons(const struct plm_config_checkpoint *rules,
                        const struct plm_retained *checkpoints, size_t count, size_t i)
{
  unsigned kept = 0;
  if (checkpoints[i].newest_valid) kept |= PLM_KEPT_NEWEST;
  if (i + rules->keep_last >= count) kept |= PLM_KEPT_LAST;
  if (among_best(checkpoints, count, i, rules->keep_best)) kept |= PLM_KEPT_BEST;
  if (rules->keep_every != 0 && checkpoints[i].step % rules->keep_every == 0)
    kept |= PLM_KEPT_EVERY;
  return kept;
}

void plm_retention_decide(const struct plm_config_checkpoint *rules, bool has_evaluator,
                          struct plm_retained *checkpoints, size_t count)
{
  size_t unreported = 0;
  for (size_t i = 0; i < count; i++) {
    PLM_ASSERT(i == 0 || checkpoints[i - 1].step <= checkpoints[i].step);
    checkpoints[i].kept = reasons(rules, checkpoints, count, i);
    unreported += !checkpoints[i].reported;
  }
  for (size_t i = 0; has_evaluator && i < count; i++) { /* the oldest first */
    if (checkpoints[i].kept != 0 || checkpoints[i].reported) continue;
    if (unreported > rules->max_unevaluated)
      unreported--;
    else
      checkpoints[i].kept = PLM_KEPT_UNEVALUATED;
  }
  for (size_t i = 0; i < count; i++) {
    checkpoints[i].remove = checkpoints[i].kept == 0;
    /* the run resumes from the newest one that verifies */
    PLM_ASSERT(!checkpoints[i].remove || !checkpoints[i].newest_valid);
  }
}

static struct plm_retained *retention_find(struct plm_retained *checkpoints, size_t count,
                                           uint64_t step)
{
  for (size_t i = 0; i < count; i++)
    if (checkpoints[i].step == step) return &checkpoints[i];
  return NULL;
}

/* Whether a line reports these weights. */
static bool is_about(const struct plm_report *report, const struct plm_retained *checkpoint)
{
  return !checkpoint->identified || !report->identified ||
         plm_hash_equal(report->identity, checkpoint->identity);
}

struct plm_retention_judge plm_retention_judge_of(const struct plm_config *config)
{
  const struct plm_config_evaluator *evaluator = &config->evaluator;
  struct plm_retention_judge judge = {.split = evaluator->splits[0]}; /* NULL without splits */
  int32_t task;
  if (plm_config_best_by(config, &task, &judge.measure) && task != PLM_NO_TASK) {
    judge.config = config;
    judge.task = (uint32_t)task;
  }
  return judge;
}

/* What is compared, the smaller the better. */
static double value_of(const char *measure, double value)
{
  return plm_measure_falls(measure) ? value : -value;
}

/* A line of the split whose loss counts. */
static void take_split(const struct plm_retention_judge *judge, const struct plm_report *report,
                       struct plm_retained *checkpoint)
{
  if (judge->split == NULL || !plm_report_is_of_split(report, judge->split)) return;
  const char *measure = judge->measure != NULL ? judge->measure : "loss";
  const double loss = plm_report_number(report, "loss"), value = plm_report_number(report, measure);
  if (!isnan(loss)) checkpoint->loss = loss;
  if (judge->config == NULL && !isnan(value)) checkpoint->value = value_of(measure, value);
}

/* A line of the task that judges. Returns whether it is one. */
static bool take_measure(const struct plm_retention_judge *judge, const struct plm_report *report,
                         struct plm_retained *checkpoint)
{
  const struct plm_config_task *task = &judge->config->evaluator.tasks[judge->task];
  if (strcmp(plm_metrics_set(report->line), task->name) != 0) return false;
  checkpoint->value = value_of(judge->measure, plm_report_number(report, judge->measure));
  return true;
}

/* Whether the task that judges measures this step. */
static bool is_due(const struct plm_retention_judge *judge, uint64_t step)
{
  return (plm_history_tasks_due(judge->config, step) &
          1u << ((unsigned)PLM_HISTORY_TASK + judge->task)) != 0;
}

struct judging {
  const struct plm_retention_judge *judge;
  struct plm_retained *checkpoints;
  size_t count;
};

static void retention_on_report(void *context, const struct plm_report *report)
{
  const struct judging *judging = context;
  const struct plm_retention_judge *judge = judging->judge;
  struct plm_retained *checkpoint =
      retention_find(judging->checkpoints, judging->count, report->step);
  if (checkpoint == NULL || report->waits || !is_about(report, checkpoint)) return;
  if (report->skipped) checkpoint->loss = checkpoint->value = NAN;
  take_split(judge, report, checkpoint);
  const bool measured = judge->config != NULL && take_measure(judge, report, checkpoint);
  checkpoint->reported |=
      report->skipped || measured || judge->config == NULL || !is_due(judge, checkpoint->step);
}

plm_status plm_retention_read_reports(const char *path, const struct plm_retention_judge *judge,
                                      struct plm_retained *checkpoints, size_t count,
                                      struct plm_error *error)
{
  struct judging judging = {judge, checkpoints, count};
  return plm_reports_each(path, retention_on_report, &judging, error);
}

bool plm_retention_has_evaluator(const char *run)
{
  static const char *const traces[] = {"evaluator.lock", PLM_RUN_EVALUATOR_METRICS};
  char path[PLM_PATH_SIZE];
  for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
    bool exists; /* if that cannot be found out, nothing is deleted for it */
    if (plm_path_join(path, run, traces[i], NULL) == PLM_OK &&
        (plm_file_look(path, &exists, NULL) != PLM_OK || exists))
      return true;
  }
  struct plm_lock_holder holder;
  return plm_lock_holder(run, "supervisor", &holder, NULL) == PLM_OK;
}
