/* The weights that a new run begins with: those of another model, or random ones. */
#include "trainer/open/first_weights.h"

#include <stdlib.h>

#include "common/base/log/log.h"
#include "common/base/text/text.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/model_folder.h"
#include "trainer/ranks/rank_tensors.h"

plm_status plm_keep_tensors(struct plm_trainer *trainer, const char *path, struct plm_error *error)
{
  size_t count;
  const struct plm_parameter *table = plm_model_table(trainer->model, &count);
  PLM_TRY(plm_frozen_tensors_read(path, table, count, &trainer->frozen, error));
  return plm_carried_tensors_read(path, table, count, &trainer->carried, error);
}

static plm_status read_folder(const struct plm_model_folder *folder, struct plm_trainer *trainer,
                              struct plm_advance *advance, float **values, struct plm_error *error)
{
  struct plm_text notes = {0};
  char path[PLM_PATH_SIZE];
  plm_status status =
      plm_model_folder_fits(folder, plm_model_config(trainer->model), &notes, error);
  if (status == PLM_OK) plm_model_folder_log_notes(&notes);
  plm_text_deinit(&notes);
  const char *file = plm_model_folder_weights(folder);
  PLM_TRY(status);
  PLM_TRY(plm_path_join(path, folder->directory, file, error));
  struct plm_new_parts parts = plm_model_folder_new_parts(folder, plm_model_config(trainer->model));
  parts.seed = trainer->config->seed;
  PLM_TRY(plm_parameters_fetch_with(folder->directory, file, trainer->model, &parts, advance,
                                    values, error));
  PLM_TRY(plm_keep_tensors(trainer, path, error));
  if (folder->checkpoint)
    plm_info("initial weights from %s (%s, step %llu)%s", folder->directory, file,
             (unsigned long long)folder->step, parts.head ? "; the head is new" : "");
  else
    plm_info("initial weights from %s%s", folder->directory, parts.head ? "; the head is new" : "");
  return PLM_OK;
}

/* trainer.init_from: loads the weights of a checkpoint or a Hugging Face folder of our model and
 * nothing else. If the folder has EMA weights it takes those, so that a run starts from the weights
 * that the evaluator saw, and a checkpoint and its export are the same start. PLM_CONFIG for every
 * defect of the folder, because starting again would not help. */
static plm_status init_from(const char *directory, struct plm_trainer *trainer, float **values,
                            struct plm_error *error)
{
  struct plm_advance advance = plm_run_pulse_reading(&trainer->pulse);
  struct plm_model_folder folder;
  plm_status status = plm_model_folder_check(directory, &folder, &advance, error);
  if (status == PLM_OK) status = read_folder(&folder, trainer, &advance, values, error);
  if (status == PLM_OK || status == PLM_NO_MEMORY) return status;
  if (error->hint[0] == '\0')
    plm_error_hint(error, "trainer.init_from must name a checkpoint or a Hugging Face folder of "
                          "the same model");
  return error->status = PLM_CONFIG;
}

/* On rank 0: reads or draws the weights. */
static plm_status make_weights(struct plm_trainer *trainer, float **values, struct plm_error *error)
{
  const char *directory = trainer->config->trainer.init_from;
  size_t count;
  const struct plm_parameter *table = plm_model_table(trainer->model, &count);
  if (directory != NULL) return init_from(directory, trainer, values, error);
  *values = calloc(plm_model_arena_elements(trainer->model), sizeof **values);
  if (*values == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the initial weights");
  plm_model_initialise(table, count, trainer->config->seed, *values);
  return plm_frozen_tensors_copy(*values, table, count, &trainer->frozen, error);
}

plm_status plm_first_weights(struct plm_trainer *trainer, struct plm_error *error)
{
  float *values = NULL;
  plm_status status = PLM_OK;
  if (plm_ranks_first(trainer->ranks)) status = make_weights(trainer, &values, error);
  if (status == PLM_OK)
    status = plm_rank_share_weights(trainer->ranks, trainer->model, values, error);
  free(values);
  if (status == PLM_OK) plm_optimizer_start_average(trainer->optimizer);
  return status;
}
