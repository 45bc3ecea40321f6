/* Keeps the scaling of numbers through resumes. */
#include "trainer/open/label_scaling.h"

#include <string.h>

#include "trainer/trainer.h"

static plm_status read_scaling(const struct plm_model_config *model, const char *directory,
                               struct plm_label_choice *choice, struct plm_error *error)
{
  struct plm_model_config with_head = *model;
  struct plm_label_names names;
  with_head.head.outputs = choice->outputs;
  PLM_TRY(plm_label_names_read(directory, &with_head, &names, error));
  if (names.mean != NULL) {
    memcpy(choice->mean, names.mean, choice->outputs * sizeof *choice->mean);
    memcpy(choice->deviation, names.deviation, choice->outputs * sizeof *choice->deviation);
  }
  plm_label_names_deinit(&names);
  return PLM_OK;
}

plm_status plm_keep_label_scaling(struct plm_trainer *trainer, const char *directory,
                                  struct plm_error *error)
{
  struct plm_collective *collective = trainer->ranks->collective;
  struct plm_label_choice *choice = &trainer->label_choice;
  const size_t bytes = choice->outputs * sizeof *choice->mean;
  if (choice->task != PLM_TASK_REGRESSION) return PLM_OK;
  if (plm_ranks_first(trainer->ranks) && directory != NULL)
    PLM_TRY(read_scaling(&trainer->config->model, directory, choice, error));
  PLM_TRY(plm_collective_broadcast(collective, PLM_LANE_INPUT, choice->mean, bytes, error));
  return plm_collective_broadcast(collective, PLM_LANE_INPUT, choice->deviation, bytes, error);
}
