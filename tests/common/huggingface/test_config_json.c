/* config.json from elsewhere: sizes beyond the limits are refused by name before anything is
 * computed from them, and a model is opened only if the weights have its shapes. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/inference/inference.h"
#include "common/model/model.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/scratch.h"

static const char *put(const char *folder, const char *name, const char *text)
{
  static char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  if (text != NULL) assert_int_equal(plm_file_write(path, text, strlen(text), 0600, NULL), PLM_OK);
  return path;
}

/* Writes the config.json of a model, with the value of one key (as "attention.block") replaced, or
 * without it if value is NULL. */
static void put_config(const char *folder, const struct plm_model_config *model, const char *key,
                       const char *value)
{
  char *text = plm_huggingface_config_print(model, 64, PLM_OBJECTIVE_MLM), first[64];
  cJSON *json = cJSON_Parse(text), *object = json;
  free(text);
  for (const char *dot; key != NULL && (dot = strchr(key, '.')) != NULL; key = dot + 1) {
    snprintf(first, sizeof first, "%.*s", (int)(dot - key), key);
    object = cJSON_GetObjectItem(object, first);
  }
  if (key != NULL && value != NULL)
    cJSON_ReplaceItemInObject(object, key, cJSON_CreateRaw(value));
  else if (key != NULL)
    cJSON_DeleteItemFromObject(object, key);
  text = cJSON_Print(json);
  cJSON_Delete(json);
  put(folder, "config.json", text);
  cJSON_free(text);
}

static void make_folder(const char *name, char folder[PLM_PATH_SIZE])
{
  const struct plm_model_config small = model_case_small(PLM_UNET);
  struct plm_parameter *table;
  size_t count, elements;
  snprintf(folder, PLM_PATH_SIZE, "%s", scratch_path(name));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  put_config(folder, &small, NULL, NULL);
  assert_int_equal(plm_model_parameters(&small, &table, &count, &elements, NULL), PLM_OK);
  float *values = calloc(elements, sizeof *values);
  assert_int_equal(
      plm_parameters_write(put(folder, "model.safetensors", NULL), table, count, values, NULL),
      PLM_OK);
  free(values);
  free(table);
}

static void sizes_beyond_the_limits_are_refused_by_name(void **state)
{
  (void)state;
  static const struct {
    const char *key, *value, *what;
  } bombs[] = {
      {"num_hidden_layers", "4000000000", "4000000000 exceeds the limit of 1024"},
      {"num_hidden_layers", "1026", "exceeds the limit"},
      {"num_unet_layers", "4294967294", "exceeds the limit of 128"},
      {"num_extra_layers", "4294967295", "exceeds the limit"},
      {"hidden_size", "4294967168", "4294967168 exceeds the limit of 65536"},
      {"num_attention_heads", "4294967295", "exceeds the limit of 512"},
      {"vocab_size", "65536", "exceeds the limit of 1024"},
      {"vocab_size", "0", "above 0"},
      {"max_length", "2147483648", "exceeds the limit of 1048576"},
      {"attention.window.start", "4294967295", "exceeds the limit"},
      {"attention.window.end", "4294967295", "exceeds the limit"},
      {"attention.block", "4294967295", "exceeds the limit"},
      {"soft_logit_cap", "1e999", "not a number from 0"},
      {"soft_logit_cap", "-1", "not a number from 0"},
      {"expansion_ratio", "1e300", "exceeds 64"},
  };
  char folder[PLM_PATH_SIZE];
  struct plm_model_folder found;
  const struct plm_model_config small = model_case_small(PLM_UNET);
  make_folder("limits", folder);
  struct plm_error error = {0};
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_OK);
  for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
    put_config(folder, &small, bombs[i].key, bombs[i].value);
    error = (struct plm_error){0};
    assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_CONFIG);
    if (strstr(error.what, bombs[i].what) == NULL || strstr(error.where, "config.json") == NULL ||
        strstr(error.where, bombs[i].key) == NULL || error.hint[0] == '\0')
      fail_msg("%s: \"%s\" at \"%s\" (%s)", bombs[i].key, error.what, error.where, error.hint);
  }
}

static void a_window_of_local_masks_is_not_empty(void **state)
{
  (void)state;
  struct plm_model_config local = model_case_small(PLM_UNET);
  struct plm_error error = {0};
  char folder[PLM_PATH_SIZE];
  local.pattern[0] |= PLM_ATTENTION_LOCAL;
  make_folder("window", folder);
  put_config(folder, &local, "window", "0");
  assert_int_equal(plm_huggingface_config_read(folder, &local, NULL, NULL, &error), PLM_FORMAT);
  put_config(folder, &local, "window", "1048577");
  assert_int_equal(plm_huggingface_config_read(folder, &local, NULL, NULL, &error), PLM_FORMAT);
  assert_string_equal(error.what,
                      "\"window\" is missing or is not a number of tokens up to 1048576");
  /* any entry of the pattern may be local */
  struct plm_model_config second = model_case_small(PLM_UNET);
  second.pattern_count = 2;
  second.pattern[0] = PLM_ATTENTION_DOCUMENT;
  second.pattern[1] = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL;
  put_config(folder, &second, "window", "0");
  assert_int_equal(plm_huggingface_config_read(folder, &local, NULL, NULL, &error), PLM_FORMAT);
  assert_string_equal(error.what, "\"window\" is 0, but attention.pattern has a `local` mask");
  struct plm_model_config whole = second;
  uint32_t none = 1;
  whole.pattern[1] = PLM_ATTENTION_DOCUMENT;
  put_config(folder, &whole, "window", "0");
  assert_int_equal(plm_huggingface_config_read(folder, &local, &none, NULL, &error), PLM_OK);
  assert_int_equal(none, 0);
  static const char *const windows[] = {"1", "1048576"};
  for (size_t i = 0; i < 2; i++) {
    uint32_t window = 0;
    put_config(folder, &second, "window", windows[i]);
    if (plm_huggingface_config_read(folder, &local, &window, NULL, &error) != PLM_OK)
      fail_msg("%s", error.what);
    assert_int_equal(window, i == 0 ? 1 : 1048576);
  }
}

static void both_names_of_a_tied_model_agree(void **state)
{
  (void)state;
  struct plm_model_config model = model_case_small(PLM_UNET);
  char folder[PLM_PATH_SIZE], what[128];
  make_folder("tied", folder);
  for (int tied = 0; tied < 2; tied++) {
    static const char *const words[] = {"false", "true"};
    struct plm_error error = {0};
    model.tie_embeddings = tied != 0;
    put_config(folder, &model, "tie_word_embeddings", words[tied]);
    assert_int_equal(plm_huggingface_config_read(folder, &model, NULL, NULL, NULL), PLM_OK);
    assert_int_equal(model.tie_embeddings, tied);
    const char *const wrong[] = {words[1 - tied], "null", "1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      put_config(folder, &model, "tie_word_embeddings", wrong[i]);
      assert_int_equal(plm_huggingface_config_read(folder, &model, NULL, NULL, &error), PLM_FORMAT);
      snprintf(what, sizeof what,
               "\"tie_word_embeddings\" is not the same as \"tie_embeddings\", which is %s",
               words[tied]);
      assert_string_equal(error.what, what);
      assert_non_null(strstr(error.hint, "false if the weights have lm_head.decoder.weight"));
    }
  }
}

static void window_and_objective_are_read(void **state)
{
  (void)state;
  const struct plm_model_config small = model_case_small(PLM_UNET);
  struct plm_model_config model;
  uint32_t window = 0;
  enum plm_objective objective = PLM_OBJECTIVE_MLM;
  struct plm_error error = {0};
  char folder[PLM_PATH_SIZE];
  make_folder("read", folder);
  put_config(folder, &small, "window", "1048576");
  assert_int_equal(plm_huggingface_config_read(folder, &model, &window, &objective, NULL), PLM_OK);
  assert_int_equal(window, 1048576);
  assert_int_equal(objective, PLM_OBJECTIVE_MLM);
  assert_int_equal(model.hidden_size, small.hidden_size);
  put_config(folder, &small, "objective", "\"causal\"");
  assert_int_equal(plm_huggingface_config_read(folder, &model, &window, &objective, NULL), PLM_OK);
  assert_int_equal(window, 64);
  assert_int_equal(objective, PLM_OBJECTIVE_CAUSAL);
  assert_int_equal(plm_huggingface_config_read(folder, &model, NULL, NULL, NULL), PLM_OK);
  put_config(folder, &small, "objective", NULL); /* as Python writes it */
  enum plm_objective implied = PLM_OBJECTIVE_CAUSAL;
  assert_int_equal(plm_huggingface_config_read(folder, &model, NULL, &implied, NULL), PLM_OK);
  assert_int_equal(implied, PLM_OBJECTIVE_MLM);
  static const char *const wrong[][3] = {
      {"objective", "\"other\"", "\"objective\" is none that this version knows"},
      {"window", "1048577", "\"window\" is missing or is not a number of tokens up to 1048576"},
      {"window", "\"64\"", "\"window\" is missing or is not a number of tokens up to 1048576"}};
  for (size_t i = 0; i < 3; i++) {
    put_config(folder, &small, wrong[i][0], wrong[i][1]);
    assert_int_equal(plm_huggingface_config_read(folder, &model, &window, &objective, &error),
                     PLM_FORMAT);
    assert_string_equal(error.what, wrong[i][2]);
    assert_string_equal(error.where, put(folder, "config.json", NULL));
  }
  assert_int_equal(window, 64); /* as before */
  assert_int_equal(objective, PLM_OBJECTIVE_CAUSAL);
}

/* Of ESM's vocabulary, of the one of bytes, and of one that nobody knows. */
static void tokens_and_classes_are_named(void **state)
{
  static const char *const keys[] = {"cls_token_id", "pad_token_id", "eos_token_id",
                                     "mask_token_id"};
  const struct plm_tokenizer *bytes = plm_tokenizer_of(PLM_TOKENIZER_BYTE);
  const struct {
    uint32_t vocabulary;
    int ids[4];
  } rows[] = {{33, {0, 1, 2, 32}},
              {bytes->vocab_size, {bytes->cls, bytes->pad, bytes->eos, bytes->mask}},
              {34, {-1, -1, -1, -1}}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_model_config model = model_case_small(PLM_TRANSFORMER);
    model.vocab_size = rows[i].vocabulary;
    model.tie_embeddings = i == 1;
    char *text = plm_huggingface_config_print_dtype(&model, 64, PLM_OBJECTIVE_MLM, "bfloat16");
    cJSON *json = cJSON_Parse(text);
    for (size_t k = 0; k < 4; k++) {
      const cJSON *id = cJSON_GetObjectItemCaseSensitive(json, keys[k]);
      assert_int_equal(id != NULL ? id->valueint : -1, rows[i].ids[k]);
    }
    assert_string_equal(cJSON_GetObjectItem(json, "model_type")->valuestring, "plm");
    assert_string_equal(cJSON_GetObjectItem(json, "dtype")->valuestring, "bfloat16");
    assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(json, "tie_word_embeddings")), i == 1);
    const cJSON *classes = cJSON_GetObjectItem(json, "architectures");
    assert_int_equal(cJSON_GetArraySize(classes), 1);
    assert_string_equal(classes->child->valuestring, "PLMForMaskedLM");
    cJSON_Delete(json);
    free(text);
  }
}

/* The operators of this backend are missing, so opening a model would crash. */
static void weights_are_compared_before_a_model_is_opened(void **state)
{
  (void)state;
  struct plm_ops untouched = {.name = "none", .act_bytes = 4};
  struct plm_inference *inference;
  struct plm_error error = {0};
  char folder[PLM_PATH_SIZE];
  make_folder("large", folder);
  struct plm_model_config large = model_case_small(PLM_UNET);
  large.hidden_size = 65536;
  large.num_attention_heads = 512;
  large.num_hidden_layers = 1024;
  put_config(folder, &large, NULL, NULL);
  assert_int_equal(
      plm_inference_open_verified(folder, NULL, &untouched, 128, &inference, NULL, &error),
      PLM_FORMAT);
  assert_non_null(strstr(error.what, "plm."));
  assert_non_null(strstr(error.where, "model.safetensors"));
}

/* The largest model that the limits allow has 2^53 parameters or fewer, but the buffers of its
 * passes overflow 64 bits. */
static void sums_of_sizes_do_not_wrap(void **state)
{
  (void)state;
  struct plm_model_config largest = model_case_small(PLM_UNET);
  struct plm_parameter *table;
  size_t count, elements;
  struct plm_model_memory memory;
  struct plm_error error = {0};
  largest.hidden_size = 65536;
  largest.num_attention_heads = 512;
  largest.num_hidden_layers = 1024;
  largest.expansion_ratio = 64;
  largest.vocab_size = 1024;
  assert_int_equal(plm_model_parameters(&largest, &table, &count, &elements, NULL), PLM_OK);
  size_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(table[i].offset, sum);
    assert_int_equal(table[i].count, table[i].rows * table[i].cols);
    sum += (table[i].count + 15) / 16 * 16;
  }
  assert_int_equal(elements, sum);
  assert_true(elements > (size_t)1 << 48);
  free(table);
  struct plm_model_options options = {.max_chunks = 16777215, .training = true};
  assert_int_equal(plm_model_memory(&largest, 4, &options, &memory, &error), PLM_LIMIT);
  assert_non_null(strstr(error.what, "address space"));
  options.max_chunks = 1;
  assert_int_equal(plm_model_memory(&largest, 4, &options, &memory, &error), PLM_OK);
  options.max_chunks = 16777216; /* 2^31 positions */
  assert_int_equal(plm_model_memory(&largest, 4, &options, &memory, &error), PLM_LIMIT);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sizes_beyond_the_limits_are_refused_by_name),
      cmocka_unit_test(a_window_of_local_masks_is_not_empty),
      cmocka_unit_test(both_names_of_a_tied_model_agree),
      cmocka_unit_test(window_and_objective_are_read),
      cmocka_unit_test(tokens_and_classes_are_named),
      cmocka_unit_test(weights_are_compared_before_a_model_is_opened),
      cmocka_unit_test(sums_of_sizes_do_not_wrap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
