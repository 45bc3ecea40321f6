/* Small folders of published weights. */
#include "tests/support/cases/published_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

enum { EXTRA = 16 };

static struct plm_model_config small(enum plm_architecture architecture)
{
  const char *text =
      architecture == PLM_ESM2
          ? "{\"model_type\":\"esm\",\"vocab_size\":33,\"hidden_size\":64,\"num_hidden_layers\":2,"
            "\"num_attention_heads\":4,\"intermediate_size\":128,\"layer_norm_eps\":1e-05,"
            "\"token_dropout\":true,\"position_embedding_type\":\"rotary\"}"
          : "{\"model_type\":\"esmc\",\"hidden_size\":64,\"num_hidden_layers\":2,"
            "\"num_attention_heads\":4,\"intermediate_size\":256}";
  struct plm_model_config model;
  assert_int_equal(plm_huggingface_config_parse(text, strlen(text), &model, NULL, NULL, NULL),
                   PLM_OK);
  return model;
}

struct published_file published_file_of(enum plm_architecture architecture)
{
  struct published_file file = {.model = small(architecture)};
  assert_int_equal(
      plm_model_parameters(&file.model, &file.table, &file.count, &file.elements, NULL), PLM_OK);
  file.values = calloc(file.elements, sizeof *file.values);
  plm_model_initialise(file.table, file.count, 3, file.values);
  file.tensors = calloc(file.count + EXTRA, sizeof *file.tensors);
  file.names = calloc(file.count + EXTRA, sizeof *file.names);
  file.tensor_count = file.count;
  for (size_t i = 0; i < file.count; i++) {
    struct plm_tensor_info *tensor = &file.tensors[i];
    snprintf(file.names[i], sizeof *file.names, "%s", file.table[i].name);
    *tensor = (struct plm_tensor_info){.name = file.names[i],
                                       .dtype = PLM_F32,
                                       .bytes = file.table[i].count * sizeof(float),
                                       .data = file.values + file.table[i].offset};
    tensor->rank = plm_parameter_shape(&file.table[i], tensor->shape);
  }
  return file;
}

void published_file_free(struct published_file *file)
{
  free(file->table);
  free(file->values);
  free(file->tensors);
  free(file->names);
}

struct plm_tensor_info *published_tensor(struct published_file *file, const char *name)
{
  for (size_t i = 0; i < file->tensor_count; i++)
    if (strcmp(file->names[i], name) == 0) return &file->tensors[i];
  fail_msg("no tensor %s", name);
  return NULL;
}

void published_add(struct published_file *file, const char *name, enum plm_dtype dtype, int rank,
                   uint64_t rows, uint64_t cols, const void *data)
{
  struct plm_tensor_info *tensor = &file->tensors[file->tensor_count];
  assert_true(file->tensor_count < file->count + EXTRA);
  snprintf(file->names[file->tensor_count], sizeof *file->names, "%s", name);
  *tensor = (struct plm_tensor_info){.name = file->names[file->tensor_count++],
                                     .dtype = dtype,
                                     .rank = rank,
                                     .shape = {rank == 2 ? rows : cols, rank == 2 ? cols : 0},
                                     .bytes = rows * cols * (dtype == PLM_I64 ? 8 : 4),
                                     .data = data};
}

void published_rename(struct published_file *file, const char *from, const char *to,
                      const char *drop)
{
  for (size_t i = 0; i < file->tensor_count; i++) {
    char *name = file->names[i];
    const size_t length = strlen(name), end = strlen(from);
    if (length > end && strcmp(name + length - end, from) == 0)
      snprintf(name + length - end, sizeof *file->names - length + end, "%s", to);
    if (strncmp(name, drop, strlen(drop)) == 0)
      memmove(name, name + strlen(drop), strlen(name + strlen(drop)) + 1);
  }
}

void published_put(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

void published_part_write(const char *folder, const char *name,
                          const struct plm_tensor_info *tensors, size_t count)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  assert_int_equal(plm_safetensors_write(path, tensors, count, NULL, 0, NULL), PLM_OK);
}

void published_folder_write(const struct published_file *file, char folder[PLM_PATH_SIZE])
{
  scratch_run(folder);
  char *config = plm_huggingface_config_print(&file->model, 0, PLM_OBJECTIVE_MLM);
  published_put(folder, "config.json", config);
  free(config);
  published_part_write(folder, PUBLISHED_WEIGHTS, file->tensors, file->tensor_count);
}

void published_expect(const struct published_file *file, const char *folder, const char *wrong)
{
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  float *again = calloc(file->elements, sizeof *again);
  assert_int_equal(plm_path_join(path, folder, PUBLISHED_WEIGHTS, NULL), PLM_OK);
  const plm_status status = plm_parameters_read(path, file->table, file->count, again, &error);
  if (wrong == NULL) {
    if (status != PLM_OK) fail_msg("%s at %s", error.what, error.where);
    assert_memory_equal(again, file->values, file->elements * sizeof *again);
  } else if ((status != PLM_FORMAT && status != PLM_NOT_FOUND) ||
             (strstr(error.what, wrong) == NULL && strstr(error.where, wrong) == NULL &&
              strstr(error.hint, wrong) == NULL)) {
    fail_msg("\"%s\" is not in \"%s\" at \"%s\" (%s)", wrong, error.what, error.where, error.hint);
  }
  free(again);
}

const float published_numbers[64] = {0.5F, 0.25F, -1, 2};

void published_add_ignored(struct published_file *file)
{
  static const int64_t positions[4] = {0, 1, 2, 3};
  const struct plm_tensor_info table =
      *published_tensor(file, "esm.embeddings.word_embeddings.weight");
  published_add(file, PUBLISHED_CONTACTS "weight", PLM_F32, 2, 1,
                PUBLISHED_LAYERS * PUBLISHED_HEADS, published_numbers);
  published_add(file, PUBLISHED_CONTACTS "bias", PLM_F32, 1, 1, 1, published_numbers + 2);
  published_add(file, "esm.embeddings.position_ids", PLM_I64, 2, 1, 4, positions);
  published_add(file, "esm.embeddings.position_embeddings.weight", PLM_F32, 2, 1, 4,
                published_numbers);
  published_add(file, "esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq", PLM_F32, 1,
                1, 8, published_numbers);
  published_add(file, "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq", PLM_F32, 1,
                1, 8, published_numbers);
  published_add(file, "esm.rotary_embeddings.inv_freq", PLM_F32, 1, 1, 8, published_numbers);
  file->tensors[file->tensor_count] = table;
  snprintf(file->names[file->tensor_count], sizeof *file->names, "lm_head.decoder.weight");
  file->tensors[file->tensor_count].name = file->names[file->tensor_count];
  file->tensor_count++;
}
