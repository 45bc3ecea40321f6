/* Checks the labels of a configuration's corpora. */
#include "stages/supervisor/prepare/run_labels.h"

#include "common/config/label_columns.h"

plm_status plm_run_labels_check(const struct plm_config *config, struct plm_error *error)
{
  struct plm_label_choice choice;
  if (!plm_objective_is_labels(config->trainer.objective)) return PLM_OK;
  const plm_status status = plm_config_read_labels(config, &choice, error);
  plm_label_choice_deinit(&choice);
  return status == PLM_NOT_FOUND ? PLM_OK : status; /* the corpus may be on another host */
}
