/* Opening a run in stages, and closing it in the opposite order. */
#include "common/base/files/descriptors.h"
#include "common/run/run.h"
#include "trainer/open/first_weights.h"
#include "trainer/open/open_device.h"
#include "trainer/open/open_feed.h"
#include "trainer/open/open_labels.h"
#include "trainer/open/open_model.h"
#include "trainer/open/open_state.h"
#include "trainer/trainer.h"
#include "trainer/trainer_options.h"

/* From here on the inputs of steps are prepared. */
static plm_status trainer_open_input(struct plm_trainer *trainer, struct plm_error *error)
{
  const struct plm_input_options options = {
      .feed = trainer->feed,
      .ranks = trainer->ranks,
      .shape = plm_step_shape(trainer->step),
      .ops = trainer->ops,
      .cursor = &trainer->state.cursor,
      .step = trainer->state.step,
      .steps = trainer->config->trainer.steps,
  };
  return plm_input_open(&options, &trainer->input, error);
}

/* Called by the thread that trains, while it waits for the writer of checkpoints. */
static void tell_writing(void *context)
{
  struct plm_trainer *trainer = context;
  plm_run_pulse_wait(&trainer->pulse, "waiting for the writer of checkpoints");
}

static plm_status open_publisher(struct plm_trainer *trainer, struct plm_error *error)
{
  struct plm_checkpoint_context context = {.run = trainer->run,
                                           .options = plm_checkpoint_options_of(trainer->config),
                                           .labels = trainer->labels != NULL ? &trainer->label_names
                                                                             : NULL,
                                           .metrics = plm_step_report_file(trainer->report),
                                           .frozen = &trainer->frozen,
                                           .carried = &trainer->carried,
                                           .lock = trainer->lock};
  context.table = plm_model_table(trainer->model, &context.table_count);
  context.tensors = plm_optimizer_tensors(trainer->optimizer, &context.tensor_count);
  const struct plm_optimizer_sizes state = plm_optimizer_sizes(trainer->optimizer);
  const struct plm_publisher_sizes sizes = {.weights = plm_model_trained_elements(trainer->model),
                                            .average = state.average,
                                            .first = state.first,
                                            .second = state.second};
  PLM_TRY(plm_publisher_open(&context, trainer->ops, &sizes, trainer->announcer,
                             &trainer->publisher, error));
  plm_publisher_waiting(trainer->publisher, tell_writing, trainer);
  return PLM_OK;
}

/* On rank 0: what every checkpoint has of the one that is resumed. plm_first_weights does it for a
 * new run. */
static plm_status keep_resumed(struct plm_trainer *trainer, const char *directory,
                               struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, directory, "model.safetensors", error));
  return plm_keep_tensors(trainer, path, error);
}

static plm_status open_outputs(struct plm_trainer *trainer, bool resumed, struct plm_error *error)
{
  PLM_TRY(plm_step_report_open(trainer->run, trainer->config->tensorboard,
                               trainer->state.metrics_bytes,
                               resumed ? (int64_t)trainer->state.step : -1,
                               trainer->config->trainer.steps, &trainer->report, error));
  return open_publisher(trainer, error);
}

static plm_status trainer_open_all(struct plm_trainer *trainer,
                                   const struct plm_fingerprints *fingerprints,
                                   struct plm_error *error)
{
  const bool first = plm_ranks_first(trainer->ranks);
  char directory[PLM_PATH_SIZE];
  bool resumed;
  PLM_TRY(plm_open_state(trainer, fingerprints, directory, &resumed, error));
  if (trainer->complete) {
    if (first) plm_remove_endpoints(trainer);
    plm_ready();
    return PLM_OK;
  }
  if (first) {
    plm_descriptors_reserve();              /* before connections can take them all */
    PLM_TRY(plm_open_feed(trainer, error)); /* packers connect while the model is made */
  }
  plm_run_pulse(&trainer->pulse, true, "opening the device");
  plm_ready();
  PLM_TRY(plm_open_device(trainer, resumed, error));
  PLM_TRY(plm_open_labels(trainer, resumed ? directory : NULL, error));
  plm_run_pulse(&trainer->pulse, true, "making the model");
  PLM_TRY(plm_open_model(trainer, error));
  plm_run_pulse(&trainer->pulse, true, "loading the weights");
  PLM_TRY(resumed ? plm_load_weights(trainer, directory, error)
                  : plm_first_weights(trainer, error));
  if (first && resumed) PLM_TRY(keep_resumed(trainer, directory, error));
  if (first) plm_carried_tensors_add_rotary(&trainer->carried, plm_model_config(trainer->model));
  if (first) PLM_TRY(open_outputs(trainer, resumed, error));
  return trainer_open_input(trainer, error);
}

plm_status plm_trainer_open(struct plm_trainer *trainer, const struct plm_config *config,
                            struct plm_ranks *ranks, const struct plm_fingerprints *fingerprints,
                            struct plm_error *error)
{
  *trainer = (struct plm_trainer){.config = config, .ranks = ranks, .run = config->run};
  const plm_status status = trainer_open_all(trainer, fingerprints, error);
  if (status == PLM_OK) return PLM_OK;
  if (status != PLM_INTERRUPTED) plm_ranks_fail(ranks, error); /* else all ranks know it */
  plm_trainer_close(trainer);
  return status;
}

void plm_trainer_close(struct plm_trainer *trainer)
{
  if (trainer->ops != NULL) trainer->ops->wait_copies(trainer->ops, NULL); /* after an error */
  plm_input_close(trainer->input);
  plm_publisher_close(trainer->publisher);
  plm_step_report_close(trainer->report);
  plm_early_stop_deinit(&trainer->reports);
  plm_close_feed(trainer);
  plm_carried_tensors_deinit(&trainer->carried); /* after the publisher */
  plm_frozen_tensors_deinit(&trainer->frozen);
  plm_close_model(trainer);
  plm_close_labels(trainer);
  plm_close_device(trainer);
  plm_close_state(trainer);
  *trainer = (struct plm_trainer){0};
}
