/* Chooses the labels of a run, and sets the head that predicts them. */
#include "trainer/open/open_labels.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/config/label_columns.h"
#include "common/run/stop.h"
#include "trainer/open/label_scaling.h"
#include "trainer/trainer.h"

/* What the outputs are called: columns, or classes. */
static void name_outputs(struct plm_trainer *trainer)
{
  const struct plm_label_choice *choice = &trainer->label_choice;
  struct plm_label_names *names = &trainer->label_names;
  const bool of_columns = choice->task == PLM_TASK_REGRESSION || choice->column_count > 1 ||
                          choice->columns[0].class_count != choice->outputs;
  names->count = choice->outputs;
  names->names = plm_alloc_zeroed(names->count, sizeof *names->names);
  for (uint32_t i = 0; i < names->count; i++)
    names->names[i] =
        plm_format("%s", of_columns ? choice->columns[i].name : choice->columns[0].classes[i]);
  if (choice->task != PLM_TASK_REGRESSION) return;
  names->mean = plm_alloc_zeroed(names->count, sizeof *names->mean);
  names->deviation = plm_alloc_zeroed(names->count, sizeof *names->deviation);
  memcpy(names->mean, choice->mean, names->count * sizeof *names->mean);
  memcpy(names->deviation, choice->deviation, names->count * sizeof *names->deviation);
}

/* Completes the configuration of the head. It is the run's own copy. */
static plm_status set_head(struct plm_trainer *trainer, struct plm_error *error)
{
  trainer->labelled_config = *trainer->config;
  trainer->labelled_config.model.head.outputs = trainer->label_choice.outputs;
  trainer->config = &trainer->labelled_config;
  return plm_model_config_check(&trainer->labelled_config.model, error);
}

/* trainer.class_weights: balanced: n / (K n_k) for n labels of K classes, n_k of class k. Their
 * mean over the labels of the training split is 1, so the loss stays comparable. A class without
 * labels there does not count, and its weight is never used. */
static plm_status weigh_classes(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_label_column *column = &trainer->label_choice.columns[0];
  struct plm_ops *ops = trainer->ops;
  double all = 0, classes = 0;
  if (trainer->config->trainer.class_weights == PLM_CLASS_WEIGHTS_NONE) return PLM_OK;
  const uint32_t K = column->class_count;
  float *weights = plm_alloc_zeroed(K, sizeof *weights);
  for (uint32_t k = 0; k < K; k++) {
    all += (double)column->counts[k];
    classes += column->counts[k] > 0;
  }
  for (uint32_t k = 0; k < K; k++)
    if (column->counts[k] > 0) weights[k] = (float)(all / (classes * (double)column->counts[k]));
  plm_status status =
      ops->allocate(ops, K * sizeof *weights, (void **)&trainer->class_weights, error);
  if (status == PLM_OK) ops->upload(ops, trainer->class_weights, weights, K * sizeof *weights);
  if (status == PLM_OK) status = ops->synchronize(ops, error); /* before the source is freed */
  free(weights);
  return status;
}

plm_status plm_open_labels(struct plm_trainer *trainer, const char *resumed,
                           struct plm_error *error)
{
  if (!plm_objective_is_labels(trainer->config->trainer.objective)) return PLM_OK;
  const uint32_t sources = plm_config_source_count(trainer->config);
  struct plm_collective *collective = trainer->ranks->collective;
  collective->note(collective, "waiting for a packer, which knows the labels", 0, true);
  trainer->awaits_labels = true; /* no thread fills inputs yet */
  const plm_status status = plm_label_schemas_receive(
      plm_ranks_first(trainer->ranks) ? trainer->feed : NULL, trainer->ranks, sources,
      &plm_stop_requested, &trainer->label_schemas, error);
  trainer->awaits_labels = false;
  PLM_TRY(status);
  collective->note(collective, "starting", 0, false);
  PLM_TRY(plm_config_choose_labels(trainer->config, trainer->label_schemas.schemas,
                                   &trainer->label_choice, error));
  PLM_TRY(plm_keep_label_scaling(trainer, resumed, error));
  name_outputs(trainer);
  PLM_TRY(set_head(trainer, error));
  PLM_TRY(weigh_classes(trainer, error));
  trainer->label_source =
      (struct plm_label_source){&trainer->label_choice, trainer->label_schemas.schemas};
  trainer->labels = &trainer->label_source;
  return PLM_OK;
}

void plm_close_labels(struct plm_trainer *trainer)
{
  if (trainer->class_weights != NULL) trainer->ops->release(trainer->ops, trainer->class_weights);
  plm_label_names_deinit(&trainer->label_names);
  plm_label_choice_deinit(&trainer->label_choice);
  plm_label_schemas_deinit(&trainer->label_schemas);
}
