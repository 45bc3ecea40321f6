/* The files of a checkpoint that transformers reads: config.json, the weights under their names,
 * and those of the tokenizer. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/config/config.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/harness/scratch.h"

static struct plm_model_config small_model(void)
{
  struct plm_config config;
  struct plm_config_problems *problems = NULL;
  struct plm_error error;
  const struct plm_config_override overrides[] = {
      {"model.expansion_ratio", "2.6666666666666665"},
      {"model.attention.pattern", "[document, document+local]"},
      {"model.attention.window", "{start: 128, end: 256, steps: 40}"},
  };
  assert_int_equal(plm_config_load(NULL, overrides, 3, &config, &problems, &error), PLM_OK);
  struct plm_model_config model = config.model;
  model.lora = (struct plm_lora_config){0}; /* not in config.json */
  plm_config_problems_free(problems);
  plm_config_deinit(&config);
  return model;
}

static void path_in(const char *folder, const char *name, char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
}

static void write_config(const char *folder, const char *text)
{
  char path[PLM_PATH_SIZE];
  path_in(folder, "config.json", path);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0644, NULL), PLM_OK);
}

static void parent_make(const char *name, char parent[PLM_PATH_SIZE])
{
  snprintf(parent, PLM_PATH_SIZE, "%s", scratch_path(name));
  assert_int_equal(plm_directory_make(parent, NULL), PLM_OK);
}

static void config_reads_back(void **state)
{
  (void)state;
  const struct plm_model_config model = small_model();
  struct plm_model_config again;
  struct plm_error error;
  uint32_t window = 0;
  enum plm_objective objective = PLM_OBJECTIVE_MLM;
  char *text, folder[PLM_PATH_SIZE];
  parent_make("config", folder);
  text = plm_huggingface_config_print(&model, 192, PLM_OBJECTIVE_CAUSAL);
  write_config(folder, text);
  assert_int_equal(plm_huggingface_config_read(folder, &again, &window, &objective, &error),
                   PLM_OK);
  assert_int_equal(window, 192);
  assert_int_equal(objective, PLM_OBJECTIVE_CAUSAL);
  assert_memory_equal(&again, &model, sizeof model);

  static const struct {
    const char *from, *to;
  } faults[] = {{"\"window\":\t192", "\"window\":\t-1"},
                {"\"window\":\t192", "\"windows\":\t192"},
                {"\"causal\"", "\"casual\""},
                {"\"hidden_size\"", "\"hidden_sizes\""},
                {"\"vocab_size\"", "\"max_length\""}};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    char changed[8192];
    const char *at = strstr(text, faults[i].from);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, faults[i].to,
             at + strlen(faults[i].from));
    write_config(folder, changed);
    assert_int_equal(plm_huggingface_config_read(folder, &again, &window, NULL, &error),
                     PLM_FORMAT);
    assert_non_null(strstr(error.where, "config.json"));
  }
  cJSON *json = cJSON_Parse(text);
  const cJSON *map = cJSON_GetObjectItem(json, "auto_map");
  assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(map, "AutoModelForMaskedLM")),
                      "modeling_plm.PLMForMaskedLM");
  assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(json, "model_type")), "plm");
  assert_int_equal(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "mask_token_id")), 32);
  cJSON_Delete(json);
  free(text);
}

static void weights_are_written_under_their_names(void **state)
{
  (void)state;
  const struct plm_model_config model = small_model();
  struct plm_parameter *table;
  size_t count, elements;
  struct plm_error error;
  struct plm_safetensors *file;
  assert_int_equal(plm_model_parameters(&model, &table, &count, &elements, &error), PLM_OK);
  float *values = calloc(elements, sizeof *values);
  plm_model_initialise(table, count, 5, values);
  const char *path = scratch_path("weights.safetensors");
  assert_int_equal(plm_parameters_write(path, table, count, values, &error), PLM_OK);
  assert_int_equal(plm_safetensors_open(path, &file, &error), PLM_OK);
  assert_string_equal(plm_safetensors_metadata(file, "format"), "pt");
  assert_int_equal(plm_safetensors_count(file), count);
  for (size_t i = 0; i < count; i++) {
    const struct plm_tensor_info *tensor = plm_safetensors_find(file, table[i].name);
    assert_non_null(tensor);
    assert_int_equal(tensor->rank, table[i].ndim);
    assert_int_equal(tensor->shape[tensor->rank - 1], table[i].cols);
    assert_memory_equal(tensor->data, values + table[i].offset, tensor->bytes);
  }
  const struct plm_tensor_info *query =
      plm_safetensors_find(file, "plm.encoder.0.attention.query.weight");
  assert_non_null(query);
  assert_int_equal(query->shape[0], query->shape[1]);
  plm_safetensors_close(file);

  float *again = calloc(elements, sizeof *again);
  assert_int_equal(plm_parameters_read(path, table, count, again, &error), PLM_OK);
  assert_memory_equal(again, values, elements * sizeof *again);
  struct plm_parameter held = table[3]; /* another model */
  strcpy(table[3].name, "plm.other.weight");
  assert_int_equal(plm_parameters_read(path, table, count, again, &error), PLM_FORMAT);
  assert_string_equal(error.what, "parameter plm.other.weight is missing");
  assert_string_equal(error.where, path);
  assert_int_equal(plm_parameters_read(path, table, 3, again, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "is not a parameter of the model"));
  table[3] = held;
  table[3].cols += 1;
  assert_int_equal(plm_parameters_read(path, table, count, again, &error), PLM_FORMAT);
  assert_non_null(strstr(error.what, "has the shape"));
  assert_non_null(strstr(error.what, ", but the model needs"));
  table[3] = held;
  const struct plm_parameter *last = &table[count - 1];
  assert_int_equal(plm_parameters_write(path, table, count - 1, values, &error), PLM_OK);
  assert_int_equal(plm_parameters_read(path, table, count, again, &error), PLM_FORMAT);
  char missing[160];
  snprintf(missing, sizeof missing, "parameter %s is missing", last->name);
  assert_string_equal(error.what, missing);
  free(again);
  free(values);
  free(table);
}

/* Compares the ids in the vocabulary of tokenizer.json with the tokenizer. */
static void tokenizer_files_agree(void **state)
{
  (void)state;
  struct plm_model_config model = small_model();
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE], *text;
  size_t size;
  parent_make("tokenizer", folder);
  for (int kind = 0; kind < 2; kind++) {
    const struct plm_tokenizer *tokenizer = plm_tokenizer_of((enum plm_tokenizer_kind)kind);
    assert_int_equal(plm_huggingface_write(folder, &model, (enum plm_tokenizer_kind)kind, NULL),
                     PLM_OK);
    path_in(folder, "tokenizer.json", path);
    assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
    cJSON *json = cJSON_Parse(text);
    const cJSON *vocabulary = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "model"), "vocab");
    assert_int_equal(cJSON_GetArraySize(vocabulary), tokenizer->vocab_size);
    for (uint32_t id = 0; id < tokenizer->vocab_size; id++) {
      const char *token = plm_token_text(tokenizer, id);
      if (kind == PLM_TOKENIZER_BYTE && id < 256 && (id <= ' ' || id > '~')) continue;
      const cJSON *entry = cJSON_GetObjectItemCaseSensitive(vocabulary, token);
      assert_non_null(entry);
      assert_int_equal(cJSON_GetNumberValue(entry), id);
    }
    cJSON_Delete(json);
    free(text);
    path_in(folder, "vocab.txt", path);
    assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
    uint32_t lines = 0;
    for (size_t i = 0; i < size; i++) lines += text[i] == '\n';
    assert_int_equal(lines, tokenizer->vocab_size);
    free(text);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(config_reads_back),
      cmocka_unit_test(weights_are_written_under_their_names),
      cmocka_unit_test(tokenizer_files_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
