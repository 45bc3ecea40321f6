/* Checks the labels of a configuration's corpora. */
#include "stages/supervisor/prepare/run_labels.h"

#include "common/config/label_columns.h"
#include "common/corpus/corpus_description.h"

/* choice: NULL: the run's corpora are not on this host. */
static plm_status check_set(const struct plm_config *config, const struct plm_config_set *set,
                            const struct plm_label_choice *choice, struct plm_error *error)
{
  struct plm_corpus_description description;
  const plm_status read = plm_corpus_description_read(set->corpus, &description, error);
  if (read != PLM_OK) return read == PLM_NOT_FOUND ? PLM_OK : read;
  const plm_status status =
      plm_config_check_set_labels(config, set, &description.labels, choice, error);
  plm_corpus_description_deinit(&description);
  return status;
}

plm_status plm_run_labels_check(const struct plm_config *config, struct plm_error *error)
{
  struct plm_label_choice choice;
  if (!plm_objective_is_labels(config->trainer.objective)) return PLM_OK;
  plm_status status = plm_config_read_labels(config, &choice, error);
  const bool here = status == PLM_OK;
  if (status == PLM_NOT_FOUND) status = PLM_OK; /* the corpus may be on another host */
  for (uint32_t i = 0; i < config->evaluator.set_count && status == PLM_OK; i++)
    status = check_set(config, &config->evaluator.sets[i], here ? &choice : NULL, error);
  plm_label_choice_deinit(&choice);
  return status;
}
