/* What a report says about a run, read from its folder: configuration, machine and metrics. */
#ifndef PLM_STAGES_VIEWS_REPORT_FACTS_H
#define PLM_STAGES_VIEWS_REPORT_FACTS_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/config/config.h"
#include "common/metrics/measure_table.h"
#include "stages/views/metrics_curves.h"
#include "stages/views/report_marks.h"

/* The trainer's metrics that a report uses; the names are those of the file. */
#define PLM_REPORT_TRAINER(X) \
  X(loss)                     \
  X(accuracy)                 \
  X(lr_hidden)                \
  X(lr_embed)                 \
  X(lr_head)                  \
  X(lr_scalar)                \
  X(tokens)                   \
  X(epoch)                    \
  X(tokens_per_second)        \
  X(padding_fraction)         \
  X(grad_norm)                \
  X(weight_norms)             \
  X(update_norms)             \
  X(step_ms)                  \
  X(data_wait_ms)             \
  X(checkpoint_ms)            \
  X(memory_bytes)             \
  X(mfu)                      \
  X(resumed)

/* Those of the trainer whose parts have a curve each (plm_curves_read). */
#define PLM_REPORT_PARTS(X)             \
  X(loss_by_source, "loss_by_source/*") \
  X(tokens_by_source, "tokens_by_source/*")

enum plm_report_trainer_metric {
#define PLM_REPORT_ENTER(name) PLM_REPORT_TRAINER_##name,
#define PLM_REPORT_ENTER_PARTS(name, key) PLM_REPORT_TRAINER_##name,
  PLM_REPORT_TRAINER(PLM_REPORT_ENTER) PLM_REPORT_PARTS(PLM_REPORT_ENTER_PARTS)
#undef PLM_REPORT_ENTER_PARTS
#undef PLM_REPORT_ENTER
      PLM_REPORT_TRAINER_COUNT
};
enum plm_report_evaluator_metric {
  PLM_REPORT_EVALUATOR_loss,
#define PLM_REPORT_ENTER(measure, name, ...) PLM_REPORT_EVALUATOR_##name,
  PLM_MEASURES_OF_CLASSES_EACH(PLM_REPORT_ENTER) PLM_MEASURES_OF_NUMBERS_EACH(PLM_REPORT_ENTER)
#undef PLM_REPORT_ENTER
      PLM_REPORT_EVALUATOR_COUNT
};

/* On what a run was trained last, from trainer.json of its newest checkpoint. */
struct plm_report_machine {
  bool known; /* there is a checkpoint */
  char processor[128], device[64], level[64], precision[32], products[128];
  char version[64], build[64];
  unsigned threads, ranks;
  double product_flops; /* per second of a large product, with which mfu is computed; 0: unknown */
};

/* Caller-owned. A run that has no metrics yet has no curves. */
struct plm_report_run {
  char folder[PLM_PATH_SIZE]; /* absolute */
  const char *name;           /* its last part; points into folder, so the struct must not move */
  const char *state;          /* "running", "complete" or "stopped" */
  struct plm_config config; /* what it was trained with; of one that is running, is trained with */
  struct plm_report_marks marks;
  struct plm_report_machine machine;
  struct plm_curves trainer[PLM_REPORT_TRAINER_COUNT], evaluator[PLM_REPORT_EVALUATOR_COUNT];
};

/* Reads the run in an absolute folder. What describes its training comes from its newest
 * checkpoint, if there is one, and not from its pipeline.yaml, which may never have been trained
 * with. PLM_NOT_FOUND if it is not a run. On PLM_OK the caller deinits *run. */
plm_status plm_report_run_read(const char *folder, struct plm_report_run *run,
                               struct plm_error *error);
void plm_report_run_deinit(struct plm_report_run *run);

/* The trainer's curve of a metric; NULL if there is none. */
const struct plm_curve *plm_report_curve(const struct plm_report_run *run,
                                         enum plm_report_trainer_metric metric);

#endif
