/* Which measures of held-out splits a report shows, and what it calls them. */
#include "stages/views/report_measures.h"

#include <math.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/best_by.h"

/* The accuracy is called after the split, because a step of training has one too. */
#define IS_SHARE(measure) ((int)PLM_MEASURE_##measure == (int)PLM_MEASURE_ACCURACY)
#define ROW(measure, name, type, words, title, note)             \
  {PLM_REPORT_EVALUATOR_##name,                                  \
   #name,                                                        \
   IS_SHARE(measure) ? "last validation " words : "last " words, \
   IS_SHARE(measure) ? "Validation " words : (title),            \
   note,                                                         \
   IS_SHARE(measure)},
const struct plm_report_measure plm_report_measures[PLM_MEASURES] = {
    PLM_MEASURES_OF_CLASSES_EACH(ROW) PLM_MEASURES_OF_NUMBERS_EACH(ROW)};
#undef ROW
#undef IS_SHARE

/* The curve of the split that the evaluator reported first, which is the first of evaluator.splits.
 * Only lines about splits have a loss. */
static const struct plm_curve *split_curve(const struct plm_report_run *run,
                                           enum plm_report_evaluator_metric metric)
{
  const struct plm_curves *loss = &run->evaluator[PLM_REPORT_EVALUATOR_loss],
                          *curves = &run->evaluator[metric];
  for (size_t i = 0; i < curves->count && loss->count > 0; i++)
    if (curves->list[i].count > 0 && strcmp(curves->list[i].split, loss->list[0].split) == 0)
      return &curves->list[i];
  return NULL;
}

double plm_report_measure_last(const struct plm_report_run *run,
                               const struct plm_report_measure *measure)
{
  const struct plm_curve *curve = split_curve(run, measure->metric);
  return curve != NULL ? curve->y[curve->count - 1] : NAN;
}

static bool objective_has(const struct plm_report_run *run, const char *measure)
{
  struct plm_text fault = {0};
  const bool lacks = plm_objective_lacks(&run->config, measure, &fault);
  plm_text_deinit(&fault);
  return !lacks;
}

bool plm_report_measure_in_summary(const struct plm_report_run *runs, size_t count,
                                   const struct plm_report_measure *measure)
{
  for (size_t i = 0; i < count; i++)
    if (objective_has(&runs[i], measure->name) || split_curve(&runs[i], measure->metric) != NULL)
      return true;
  return false;
}

bool plm_report_measure_in_charts(const struct plm_report_run *runs, size_t count,
                                  const struct plm_report_measure *measure)
{
  for (size_t i = 0; i < count; i++)
    if (runs[i].evaluator[measure->metric].count > 0) return true;
  return plm_report_measure_in_summary(runs, count, measure);
}

bool plm_report_has_training_accuracy(const struct plm_report_run *runs, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const enum plm_objective objective = runs[i].config.trainer.objective;
    if (objective != PLM_OBJECTIVE_REGRESSION && objective != PLM_OBJECTIVE_MULTILABEL) return true;
    if (plm_report_curve(&runs[i], PLM_REPORT_TRAINER_accuracy) != NULL) return true;
  }
  return false;
}

static bool is_of_split(const struct plm_report_run *run, const char *subject)
{
  const struct plm_curves *loss = &run->evaluator[PLM_REPORT_EVALUATOR_loss];
  for (size_t i = 0; i < loss->count; i++)
    if (strcmp(loss->list[i].split, subject) == 0) return true;
  return false;
}

const char *plm_report_measure_note(const struct plm_report_run *runs, size_t count,
                                    const struct plm_report_measure *measure)
{
  bool tasks = false, labels = false, tokens = false;
  for (size_t i = 0; i < count; i++) {
    const struct plm_curves *curves = &runs[i].evaluator[measure->metric];
    for (size_t c = 0; c < curves->count; c++)
      tasks |= !is_of_split(&runs[i], curves->list[c].split);
    if (!objective_has(&runs[i], measure->name)) continue;
    const bool predicts_labels = plm_objective_is_labels(runs[i].config.trainer.objective);
    labels |= predicts_labels;
    tokens |= !predicts_labels;
  }
  if (tasks && !labels && !tokens) return "of evaluator.tasks";
  if (labels && !tokens) return measure->note;
  if (labels) return measure->share ? "%" : "";
  return measure->share ? "% of masked residues" : "of masked residues";
}

static const char *loss_unit(const struct plm_report_run *run, const char *tokens)
{
  const enum plm_objective objective = run->config.trainer.objective;
  if (objective == PLM_OBJECTIVE_REGRESSION) return "mean squared error of the normalised numbers";
  return plm_objective_is_labels(objective) ? "nats for a label" : tokens;
}

const char *plm_report_loss_note(const struct plm_report_run *runs, size_t count,
                                 const char *tokens)
{
  const char *note = loss_unit(&runs[0], tokens);
  for (size_t i = 1; i < count; i++)
    if (strcmp(note, loss_unit(&runs[i], tokens)) != 0) return "";
  return note;
}
