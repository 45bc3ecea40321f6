/* What a model folder is. */
#include "common/huggingface/folder_facts.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/log/progress.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/tensor_names.h"
#include "common/checkpoint/tensor_shards.h"
#include "common/checkpoint/tensor_values.h"
#include "common/model/architecture.h"

static void name_class(const struct plm_model_folder *folder,
                       const struct plm_tensor_naming *naming, char name[PLM_HEAD_CLASS_SIZE])
{
  if (naming->head == PLM_HEAD_NONE)
    (void)snprintf(name, PLM_HEAD_CLASS_SIZE, "%s", plm_tensor_trunk_class(naming));
  else
    (void)plm_head_class(&folder->model, name);
}

static void count_all(const struct plm_tensor_shards *files, const struct plm_tensor_naming *naming,
                      const struct plm_parameter *table, size_t count,
                      struct plm_folder_facts *facts)
{
  for (size_t p = 0; p < count; p++)
    if (plm_tensor_wanted(naming, &table[p])) facts->parameters += table[p].count;
  for (size_t i = 0; i < plm_tensor_shards_count(files); i++) {
    const struct plm_tensor_info *tensor = plm_tensor_shards_at(files, i);
    facts->bytes += tensor->bytes;
    if (plm_tensor_use(files, naming, table, count, tensor) == PLM_TENSOR_CARRIED)
      facts->contact_head = true;
  }
}

plm_status plm_folder_facts_read(const struct plm_model_folder *folder,
                                 struct plm_folder_facts *facts, struct plm_error *error)
{
  static const char file[] = "model.safetensors";
  char path[PLM_PATH_SIZE];
  struct plm_tensor_shards *files;
  struct plm_parameter *table;
  size_t count, elements;
  *facts = (struct plm_folder_facts){0};
  PLM_TRY(plm_parameters_check(folder->directory, file, &folder->model, error));
  PLM_TRY(plm_path_join(path, folder->directory, file, error));
  PLM_TRY(plm_model_parameters(&folder->model, &table, &count, &elements, error));
  const plm_status status = plm_tensor_shards_open(path, &files, error);
  if (status == PLM_OK) {
    const struct plm_tensor_naming naming = plm_tensor_naming_of(files, table, count);
    const struct plm_tensor_info *first = plm_tensor_of_parameter(files, &naming, &table[0]);
    name_class(folder, &naming, facts->class_name);
    facts->dtype = first != NULL ? plm_dtype_name(first->dtype) : NULL;
    if (facts->dtype == NULL) facts->dtype = "an unknown type";
    facts->files = plm_tensor_shards_files(files);
    facts->head = naming.head;
    count_all(files, &naming, table, count, facts);
    plm_tensor_shards_close(files);
  }
  free(table);
  return status;
}

static const char *family_name(enum plm_architecture architecture)
{
  const char *title = plm_architecture_rules(architecture)->title;
  return title != NULL ? title : plm_architecture_name(architecture);
}

void plm_folder_facts_print(const struct plm_model_folder *folder,
                            const struct plm_folder_facts *facts, struct plm_text *text)
{
  const struct plm_model_config *model = &folder->model;
  static const char *const heads[] = {[PLM_HEAD_LM] = "the language model's head",
                                      [PLM_HEAD_CLASSIFIER] = "a classifier, which `predict` uses",
                                      [PLM_HEAD_NONE] = "no head, so there are no logits"};
  char parameters[32], files[48] = "one file";
  plm_format_count(facts->parameters, parameters);
  if (facts->files > 1) (void)snprintf(files, sizeof files, "%zu shards", facts->files);
  plm_text_printf(text, "%s (%s), %s parameters in %s, %u layers of width %u with %u heads; ",
                  family_name(model->architecture), facts->class_name, parameters, facts->dtype,
                  plm_architecture_blocks(model), model->hidden_size, model->num_attention_heads);
  plm_text_printf(text, "%s, %.1f MB; %s%s", files, 1e-6 * (double)facts->bytes, heads[facts->head],
                  facts->contact_head ? ", and a contact head" : "");
}
