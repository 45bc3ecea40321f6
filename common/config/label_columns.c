/* Chooses the labels of a configuration. */
#include "common/config/label_columns.h"

#include <string.h>

#include "common/corpus/corpus_description.h"
#include "common/model/labelled_rows.h"

plm_status plm_config_choose_labels(const struct plm_config *config,
                                    const struct plm_label_schema *const *schemas,
                                    struct plm_label_choice *choice, struct plm_error *error)
{
  const uint32_t count = plm_config_source_count(config);
  const char *sources[PLM_MAX_SOURCES];
  char source_names[PLM_MAX_SOURCES][PLM_SOURCE_NAME_SIZE];
  for (uint32_t k = 0; k < count; k++) {
    plm_config_source_name(config, k, source_names[k]);
    sources[k] = plm_config_source(config, k).path != NULL ? source_names[k] : NULL;
  }
  const plm_status status = plm_label_choose(
      plm_label_task_of(&config->model.head), (const char *const *)config->trainer.labels,
      config->trainer.label_count, schemas, sources, count, choice, error);
  return status == PLM_OK ? status : plm_error_where(error, "trainer.labels");
}

/* Reads the descriptions of all corpora; `read` counts those to deinit. */
static plm_status read_all(const struct plm_config *config,
                           struct plm_corpus_description descriptions[PLM_MAX_SOURCES],
                           uint32_t *read, struct plm_error *error)
{
  *read = 0;
  while (*read < plm_config_source_count(config)) {
    const char *path = plm_config_source(config, *read).path;
    if (path == NULL) return plm_error_set(error, PLM_NOT_FOUND, "no corpus is named");
    PLM_TRY(plm_corpus_description_read(path, &descriptions[*read], error));
    ++*read;
  }
  return PLM_OK;
}

plm_status plm_config_read_labels(const struct plm_config *config, struct plm_label_choice *choice,
                                  struct plm_error *error)
{
  struct plm_corpus_description descriptions[PLM_MAX_SOURCES];
  const struct plm_label_schema *schemas[PLM_MAX_SOURCES];
  uint32_t count;
  *choice = (struct plm_label_choice){0};
  plm_status status = read_all(config, descriptions, &count, error);
  for (uint32_t k = 0; k < count; k++) schemas[k] = &descriptions[k].labels;
  if (status == PLM_OK) status = plm_config_choose_labels(config, schemas, choice, error);
  for (uint32_t k = 0; k < count; k++) plm_corpus_description_deinit(&descriptions[k]);
  return status;
}

/* ---- sets -------------------------------------------------------------------------------------
 */

/* Both lists are sorted. */
static bool shares_a_class(const struct plm_label_column *a, const struct plm_label_column *b)
{
  uint32_t i = 0, j = 0;
  while (i < a->class_count && j < b->class_count) {
    const int order = strcmp(a->classes[i], b->classes[j]);
    if (order == 0) return true;
    i += order < 0;
    j += order > 0;
  }
  return false;
}

/* Whether the classes of the column are outputs, and not the column itself. */
static bool classes_are_outputs(const struct plm_label_choice *choice)
{
  return choice->task == PLM_TASK_CLASSIFICATION || choice->task == PLM_TASK_RESIDUES ||
         (choice->task == PLM_TASK_MULTILABEL && choice->columns->kind == PLM_LABEL_CLASSES);
}

static plm_status check_set_columns(const struct plm_config *config,
                                    const struct plm_config_set *set,
                                    const struct plm_label_schema *schema,
                                    const struct plm_label_choice *choice, struct plm_error *error)
{
  PLM_TRY(plm_label_check_columns(plm_label_task_of(&config->model.head),
                                  (const char *const *)config->trainer.labels,
                                  config->trainer.label_count, schema, set->corpus, error));
  for (uint32_t i = 0; choice != NULL && i < choice->column_count; i++) {
    const struct plm_label_column *trained = &choice->columns[i];
    const struct plm_label_column *column = plm_label_schema_find(schema, trained->name);
    if (column->kind != trained->kind)
      return plm_error_set(error, PLM_CONFIG,
                           "the labels %s of corpus %s are of kind %s, but the run's are of kind "
                           "%s",
                           trained->name, set->corpus, plm_label_kind_name(column->kind),
                           plm_label_kind_name(trained->kind));
    if (classes_are_outputs(choice) && !shares_a_class(column, trained))
      return plm_error_set(error, PLM_CONFIG,
                           "the labels %s of corpus %s have no class in common with those that "
                           "the run trains on",
                           trained->name, set->corpus);
  }
  return PLM_OK;
}

plm_status plm_config_check_set_labels(const struct plm_config *config,
                                       const struct plm_config_set *set,
                                       const struct plm_label_schema *schema,
                                       const struct plm_label_choice *choice,
                                       struct plm_error *error)
{
  if (!plm_objective_is_labels(config->trainer.objective)) return PLM_OK;
  const plm_status status = check_set_columns(config, set, schema, choice, error);
  return status == PLM_OK ? status : plm_error_where(error, "evaluator.sets: %s", set->name);
}
