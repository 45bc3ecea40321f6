/* The measures of held-out splits in a report, as the summary and the charts show them. Which of
 * them a run has depends on its objective (doc/training.md#early-stopping). */
#ifndef PLM_STAGES_VIEWS_REPORT_MEASURES_H
#define PLM_STAGES_VIEWS_REPORT_MEASURES_H

#include "stages/views/report_facts.h"

struct plm_report_measure {
  enum plm_report_evaluator_metric metric;
  const char *name;  /* of the field in evaluator.jsonl */
  const char *row;   /* heading in the summary */
  const char *title; /* of the chart */
  const char *note;  /* the same, of a model that predicts labels */
  bool share;        /* shown in percent */
};
extern const struct plm_report_measure plm_report_measures[PLM_MEASURES];

/* The last value on the first of evaluator.splits; NAN if there is none. Values of evaluator.tasks
 * do not count. */
double plm_report_measure_last(const struct plm_report_run *run,
                               const struct plm_report_measure *measure);
/* Whether the objective of any of the runs has the measure, or a line of any has it for its split.
 */
bool plm_report_measure_in_summary(const struct plm_report_run *runs, size_t count,
                                   const struct plm_report_measure *measure);
/* The same, or a task of any of the runs has it. */
bool plm_report_measure_in_charts(const struct plm_report_run *runs, size_t count,
                                  const struct plm_report_measure *measure);
/* Whether any of the runs has an accuracy of its training steps, by its objective or its lines. */
bool plm_report_has_training_accuracy(const struct plm_report_run *runs, size_t count);

/* What a measure is of: labels, masked residues, or tasks. */
const char *plm_report_measure_note(const struct plm_report_run *runs, size_t count,
                                    const struct plm_report_measure *measure);
/* The unit of the losses of one run or several; that of language models is `tokens`. "" if the runs
 * differ. */
const char *plm_report_loss_note(const struct plm_report_run *runs, size_t count,
                                 const char *tokens);

#endif
