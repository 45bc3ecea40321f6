/* The weights that a new run begins with: those of another model, or random ones. */
#include "trainer/open/first_weights.h"

#include <stdlib.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/model_folder.h"
#include "trainer/ranks/rank_tensors.h"

static void say_what_differs(const struct plm_text *notes)
{
  if (notes->length > 0)
    plm_info("trainer.init_from: the weights were trained with other settings:\n%.*s",
             (int)notes->length - 1, notes->data);
}

static plm_status load_folder(const struct plm_model_folder *folder, struct plm_model *model,
                              struct plm_advance *advance, struct plm_error *error)
{
  struct plm_text notes = {0};
  plm_status status = plm_model_folder_fits(folder, plm_model_config(model), &notes, error);
  if (status == PLM_OK) say_what_differs(&notes);
  plm_text_deinit(&notes);
  const char *file = plm_model_folder_weights(folder);
  if (status == PLM_OK)
    status = plm_parameters_load(folder->directory, file, model, advance, error);
  if (status != PLM_OK) return status;
  if (folder->checkpoint)
    plm_info("initial weights from %s (%s, step %llu)", folder->directory, file,
             (unsigned long long)folder->step);
  else
    plm_info("initial weights from %s", folder->directory);
  return PLM_OK;
}

/* trainer.init_from: loads the weights of a checkpoint or a Hugging Face folder of our model and
 * nothing else. If the folder has EMA weights it takes those, so that a run starts from the weights
 * that the evaluator saw, and a checkpoint and its export are the same start. PLM_CONFIG for every
 * defect of the folder, because starting again would not help. */
static plm_status init_from(const char *directory, struct plm_model *model,
                            struct plm_advance *advance, struct plm_error *error)
{
  struct plm_model_folder folder;
  plm_status status = plm_model_folder_check(directory, &folder, advance, error);
  if (status == PLM_OK) status = load_folder(&folder, model, advance, error);
  if (status == PLM_OK || status == PLM_NO_MEMORY) return status;
  if (error->hint[0] == '\0')
    plm_error_hint(error, "trainer.init_from must name a checkpoint or a Hugging Face folder of "
                          "the same model");
  return error->status = PLM_CONFIG;
}

/* On rank 0: reads or draws the weights. */
static plm_status make_weights(struct plm_trainer *trainer, struct plm_error *error)
{
  if (trainer->config->trainer.init_from != NULL) {
    struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
    PLM_TRY(init_from(trainer->config->trainer.init_from, trainer->model, &advance, error));
  } else {
    size_t count;
    const struct plm_parameter *table = plm_model_table(trainer->model, &count);
    const size_t elements = plm_model_arena_elements(trainer->model);
    float *values = calloc(elements, sizeof *values);
    if (values == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for the initial weights");
    plm_model_initialise(table, count, trainer->config->seed, values);
    trainer->ops->upload(trainer->ops, plm_model_loading_arena(trainer->model), values,
                         elements * sizeof *values);
    plm_model_loaded(trainer->model);
    free(values);
  }
  return PLM_OK;
}

plm_status plm_first_weights(struct plm_trainer *trainer, struct plm_error *error)
{
  if (plm_ranks_first(trainer->ranks)) PLM_TRY(make_weights(trainer, error));
  PLM_TRY(plm_rank_share_weights(trainer->ranks, trainer->model, error));
  plm_optimizer_start_average(trainer->optimizer);
  return PLM_OK;
}
