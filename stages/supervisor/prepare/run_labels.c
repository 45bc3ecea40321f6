/* Checks the labels of a configuration's corpora. */
#include "stages/supervisor/prepare/run_labels.h"

#include "common/config/label_columns.h"
#include "common/corpus/corpus_description.h"

/* Reads the descriptions of all corpora; `read` counts those to deinit. */
static plm_status read_all(const struct plm_config *config,
                           struct plm_corpus_description descriptions[PLM_MAX_SOURCES],
                           uint32_t *read, struct plm_error *error)
{
  *read = 0;
  while (*read < plm_config_source_count(config)) {
    const char *path = plm_config_source(config, *read).path;
    PLM_TRY(plm_corpus_description_read(path, &descriptions[*read], error));
    ++*read;
  }
  return PLM_OK;
}

plm_status plm_run_labels_check(const struct plm_config *config, struct plm_error *error)
{
  struct plm_corpus_description descriptions[PLM_MAX_SOURCES];
  const struct plm_label_schema *schemas[PLM_MAX_SOURCES];
  struct plm_label_choice choice = {0};
  uint32_t count;
  if (!plm_objective_is_labels(config->trainer.objective) || config->corpus == NULL) return PLM_OK;
  plm_status status = read_all(config, descriptions, &count, error);
  for (uint32_t k = 0; k < count; k++) schemas[k] = &descriptions[k].labels;
  if (status == PLM_OK) status = plm_config_choose_labels(config, schemas, &choice, error);
  plm_label_choice_deinit(&choice);
  for (uint32_t k = 0; k < count; k++) plm_corpus_description_deinit(&descriptions[k]);
  return status == PLM_NOT_FOUND ? PLM_OK : status; /* the corpus may be on another host */
}
