/* Model folders: checkpoints and exports are distinguished, weights are read in every form, and a
 * model that does not fit is described. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/tensor_values.h"
#include "common/huggingface/folder_facts.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/scratch.h"

/* The parameters of a model with values in host memory. */
struct weights {
  struct plm_parameter *table;
  size_t count, elements;
  float *values;
};

static struct weights weights_of(const struct plm_model_config *model)
{
  struct weights weights;
  assert_int_equal(
      plm_model_parameters(model, &weights.table, &weights.count, &weights.elements, NULL), PLM_OK);
  weights.values = calloc(weights.elements, sizeof *weights.values);
  plm_model_initialise(weights.table, weights.count, 3, weights.values);
  return weights;
}

static void weights_free(struct weights *weights)
{
  free(weights->table);
  free(weights->values);
}

static void path_in(const char *folder, const char *name, char path[PLM_PATH_SIZE])
{
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
}

static void put(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  path_in(folder, name, path);
  assert_int_equal(plm_file_write(path, text, strlen(text), 0600, NULL), PLM_OK);
}

static void drop(const char *folder, const char *name)
{
  char path[PLM_PATH_SIZE];
  path_in(folder, name, path);
  assert_int_equal(unlink(path), 0);
}

/* Makes a folder as save_pretrained does, with the weights of weights_of. */
static void make_export(const char *name, const struct plm_model_config *model,
                        char folder[PLM_PATH_SIZE])
{
  char path[PLM_PATH_SIZE], *config;
  struct weights weights = weights_of(model);
  snprintf(folder, PLM_PATH_SIZE, "%s", scratch_path(name));
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  config = plm_huggingface_config_print(model, 64, PLM_OBJECTIVE_CAUSAL);
  put(folder, "config.json", config);
  free(config);
  path_in(folder, "model.safetensors", path);
  assert_int_equal(plm_parameters_write(path, weights.table, weights.count, weights.values, NULL),
                   PLM_OK);
  weights_free(&weights);
}

static void seal(const char *folder, const char *const *names, size_t count)
{
  struct plm_manifest manifest = {.step = 40, .count = count};
  for (size_t i = 0; i < count; i++) {
    char path[PLM_PATH_SIZE];
    path_in(folder, names[i], path);
    strcpy(manifest.files[i].name, names[i]);
    assert_int_equal(
        plm_hash_file(path, &manifest.files[i].hash, &manifest.files[i].size, NULL, NULL), PLM_OK);
  }
  char *text = plm_manifest_print(&manifest);
  put(folder, "MANIFEST", text);
  free(text);
}

static void expect(const char *folder, plm_status status, const char *what, const char *hint)
{
  struct plm_model_folder found;
  struct plm_error error = {0};
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), status);
  if (strstr(error.what, what) == NULL || strstr(error.hint, hint) == NULL)
    fail_msg("\"%s\" (%s)", error.what, error.hint);
}

/* ---- kinds of folders ---------------------------------------------------------------------- */

static void both_kinds_are_distinguished(void **state)
{
  (void)state;
  static const char *const files[] = {"config.json", "ema.safetensors", "model.safetensors"};
  const struct plm_model_config model = model_case_small(PLM_UNET);
  char folder[PLM_PATH_SIZE], link[PLM_PATH_SIZE];
  struct plm_model_folder found;
  struct plm_error error;
  make_export("kinds", &model, folder);
  assert_int_equal(plm_model_folder_check(folder, &found, NULL, &error), PLM_OK);
  assert_false(found.checkpoint);
  assert_false(found.averaged);
  assert_int_equal(found.window, 64);
  assert_int_equal(found.objective, PLM_OBJECTIVE_CAUSAL);
  assert_memory_equal(&found.model, &model, sizeof model);
  assert_string_equal(plm_model_folder_weights(&found), "model.safetensors");

  put(folder, "ema.safetensors", "averages");
  expect(folder, PLM_CORRUPT, "has no MANIFEST", "checkpoints --verify");
  seal(folder, files, 3);
  snprintf(link, sizeof link, "%s", scratch_path("latest"));
  assert_int_equal(symlink(folder, link), 0);
  assert_int_equal(plm_model_folder_check(link, &found, NULL, &error), PLM_OK);
  assert_true(found.checkpoint);
  assert_int_equal(found.step, 40);
  assert_string_equal(plm_model_folder_weights(&found), "ema.safetensors");
  assert_null(strstr(found.directory, "latest"));
  put(folder, "config.json", "{}");
  expect(link, PLM_CORRUPT, "config.json has 2 bytes", "");
}

static void a_folder_without_a_model_is_explained(void **state)
{
  (void)state;
  const struct plm_model_config model = model_case_small(PLM_TRANSFORMER);
  char folder[PLM_PATH_SIZE], inner[PLM_PATH_SIZE];
  expect(scratch_path("nowhere"), PLM_NOT_FOUND, "there is no such folder", "save_pretrained");
  make_export("none", &model, folder);
  path_in(folder, "config.json/inner", inner);
  expect(inner, PLM_IO, "/config.json/inner: Not a directory", "");
  drop(folder, "model.safetensors");
  expect(folder, PLM_NOT_FOUND, "no weights", "save_pretrained");
  put(folder, "pytorch_model.bin", "pickle");
  expect(folder, PLM_NOT_FOUND, "no weights", "only safetensors are read, not pytorch_model.bin");
  put(folder, "trainer.json", "{}");
  expect(folder, PLM_CORRUPT, "it has trainer.json) has no MANIFEST", "");
  drop(folder, "config.json");
  expect(folder, PLM_NOT_FOUND, "neither MANIFEST nor config.json", "");
  path_in(folder, "checkpoints/latest", inner);
  assert_int_equal(plm_directory_make(inner, NULL), PLM_OK);
  expect(folder, PLM_NOT_FOUND, "neither MANIFEST nor config.json", "this is a run");
  path_in(folder, "checkpoints", inner);
  expect(inner, PLM_NOT_FOUND, "neither MANIFEST nor config.json", "this folder holds checkpoints");
}

/* ---- fitting ------------------------------------------------------------------------------- */

static void another_model_is_named_by_its_keys(void **state)
{
  (void)state;
  struct plm_model_folder folder = {.directory = "some/folder"};
  struct plm_model_config other;
  struct plm_error error;
  struct plm_text notes = {0};
#define CASE(architecture_, key, value, says)                                             \
  do {                                                                                    \
    folder.model = other = model_case_small(architecture_);                               \
    other.key = value;                                                                    \
    assert_int_equal(plm_model_folder_fits(&folder, &other, &notes, &error), PLM_CONFIG); \
    assert_string_equal(error.where, "some/folder");                                      \
    assert_string_equal(error.what, "the weights belong to another model: " says);        \
    assert_null(notes.data);                                                              \
  } while (0)
  CASE(PLM_UNET, architecture, PLM_TRANSFORMER,
       "model.architecture is \"unet\" in the folder, \"transformer\" here");
  CASE(PLM_UNET, hidden_size, 128, "model.hidden_size is 64 in the folder, 128 here");
  CASE(PLM_TRANSFORMER, num_attention_heads, 4,
       "model.num_attention_heads is 2 in the folder, 4 here");
  CASE(PLM_TRANSFORMER, num_hidden_layers, 3, "model.num_hidden_layers is 2 in the folder, 3 here");
  CASE(PLM_PATCH_UNET, num_unet_layers, 6, "model.num_unet_layers is 4 in the folder, 6 here");
  CASE(PLM_PATCH_UNET, num_extra_layers, 0, "model.num_extra_layers is 1 in the folder, 0 here");
  CASE(PLM_UNET, expansion_ratio, 6.5, "model.expansion_ratio is 2 in the folder, 6.5 here");
  CASE(PLM_UNET, tie_embeddings, true, "model.tie_embeddings is false in the folder, true here");
  CASE(PLM_UNET, vocab_size, 261, "data.tokenizer: its vocabulary is 33 in the folder, 261 here");
  CASE(PLM_PATCH_UNET, max_length, 2, "data.max_length is 128 in the folder, 2 here");
#undef CASE
  /* two keys at once, and one that does not matter for a patch_unet */
  folder.model = other = model_case_small(PLM_PATCH_UNET);
  other.num_unet_layers = 6;
  other.num_hidden_layers = 12;
  other.tie_embeddings = true;
  assert_int_equal(plm_model_folder_fits(&folder, &other, NULL, &error), PLM_CONFIG);
  assert_string_equal(
      error.what,
      "the weights belong to another model: model.num_unet_layers is 4 in the folder, 6 here; "
      "model.tie_embeddings is false in the folder, true here");
}

static void keys_that_may_differ_are_noted(void **state)
{
  (void)state;
  struct plm_model_folder folder = {.model = model_case_small(PLM_TRANSFORMER)};
  struct plm_model_config other = folder.model;
  struct plm_text notes = {0};
  assert_int_equal(plm_model_folder_fits(&folder, &other, &notes, NULL), PLM_OK);
  assert_null(notes.data);
  other.soft_logit_cap = 0;
  other.max_length = 512;
  other.pattern[0] |= PLM_ATTENTION_LOCAL;
  other.window_end = 128;
  assert_int_equal(plm_model_folder_fits(&folder, &other, &notes, NULL), PLM_OK);
  assert_string_equal(notes.data, "soft_logit_cap was 16, is 0\nmax_length was 128, is 512\n"
                                  "attention.pattern was [\"document\"], is [\"document+local\"]\n"
                                  "attention.window.end was 64, is 128\n");
  plm_text_deinit(&notes);
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Makes a tensor of each parameter, of the given dtype; *bytes holds their data. */
static struct plm_tensor_info *tensors_of(const struct weights *weights, enum plm_dtype dtype,
                                          unsigned char **bytes)
{
  const size_t item = dtype == PLM_F64 ? 8 : dtype == PLM_F32 ? 4 : 2;
  struct plm_tensor_info *tensors = calloc(weights->count + 1, sizeof *tensors);
  unsigned char *next = *bytes = calloc(weights->elements, item);
  for (size_t i = 0; i < weights->count; i++) {
    const struct plm_parameter *p = &weights->table[i];
    tensors[i] = (struct plm_tensor_info){.name = p->name, .dtype = dtype, .rank = p->ndim};
    tensors[i].shape[0] = (uint64_t)(p->ndim == 2 ? p->rows : p->cols);
    tensors[i].shape[1] = p->ndim == 2 ? (uint64_t)p->cols : 0;
    tensors[i].bytes = p->count * item;
    tensors[i].data = next;
    for (size_t k = 0; k < p->count; k++, next += item) {
      const float value = weights->values[p->offset + k];
      const double wide = value;
      const uint16_t brief = plm_float_to_bf16(value);
      if (dtype == PLM_F64) memcpy(next, &wide, 8);
      if (dtype == PLM_F32) memcpy(next, &value, 4);
      if (dtype == PLM_BF16) memcpy(next, &brief, 2);
    }
  }
  return tensors;
}

/* Writes element k of a tensor whose data is in `bytes`. */
static void put_at(unsigned char *bytes, const struct plm_tensor_info *tensor, size_t k,
                   enum plm_dtype dtype, double value)
{
  const float narrow = (float)value;
  const uint16_t brief = plm_float_to_bf16(narrow);
  const size_t size = dtype == PLM_F64 ? 8 : dtype == PLM_F32 ? 4 : 2;
  const void *from = dtype == PLM_F64   ? (const void *)&value
                     : dtype == PLM_F32 ? (const void *)&narrow
                                        : (const void *)&brief;
  memcpy(bytes + ((const unsigned char *)tensor->data - bytes) + k * size, from, size);
}

static void every_float_dtype_is_read(void **state)
{
  (void)state;
  static const enum plm_dtype dtypes[] = {PLM_F32, PLM_F64, PLM_BF16};
  const struct plm_model_config model = model_case_small(PLM_PATCH_UNET);
  struct weights weights = weights_of(&model);
  float *again = calloc(weights.elements, sizeof *again);
  struct plm_error error = {0};
  char says[300];
  const char *path = scratch_path("dtypes.safetensors");
  for (size_t d = 0; d < 3; d++) {
    unsigned char *bytes;
    struct plm_tensor_info *tensors = tensors_of(&weights, dtypes[d], &bytes);
    assert_int_equal(plm_safetensors_write(path, tensors, weights.count, NULL, 0, &error), PLM_OK);
    assert_int_equal(plm_parameters_read(path, weights.table, weights.count, again, &error),
                     PLM_OK);
    for (size_t i = 0; i < weights.elements; i++) {
      const float value = weights.values[i];
      if (dtypes[d] == PLM_BF16)
        assert_true(fabsf(again[i] - value) <= fabsf(value) * 0x1p-8F);
      else
        assert_true(again[i] == value);
    }
    tensors[2].dtype = PLM_I32; /* with another shape, so that the bytes match */
    if (dtypes[d] == PLM_F32) {
      assert_int_equal(plm_safetensors_write(path, tensors, weights.count, NULL, 0, NULL), PLM_OK);
      assert_int_equal(plm_parameters_read(path, weights.table, weights.count, again, &error),
                       PLM_FORMAT);
      assert_non_null(strstr(error.what, "does not hold floating-point numbers"));
    }
    tensors[2].dtype = dtypes[d];
    put_at(bytes, &tensors[2], 3, dtypes[d], d % 2 == 0 ? (double)NAN : -INFINITY);
    assert_int_equal(plm_safetensors_write(path, tensors, weights.count, NULL, 0, NULL), PLM_OK);
    assert_int_equal(plm_parameters_read(path, weights.table, weights.count, again, &error),
                     PLM_FORMAT);
    snprintf(says, sizeof says, "tensor %s holds %s at element 3", tensors[2].name,
             d % 2 == 0 ? "nan" : "-inf");
    assert_string_equal(error.what, says);
    assert_string_equal(error.where, path);
    free(tensors);
    free(bytes);
  }
  free(again);
  weights_free(&weights);
}

static void expect_weights(const char *path, const struct weights *weights, const char *says)
{
  struct plm_error error = {0};
  float *again = calloc(weights->elements, sizeof *again);
  const plm_status status =
      plm_parameters_read(path, weights->table, weights->count, again, &error);
  if (says == NULL) {
    assert_int_equal(status, PLM_OK);
    assert_memory_equal(again, weights->values, weights->elements * sizeof *again);
  } else if (status == PLM_OK ||
             (strstr(error.what, says) == NULL && strstr(error.hint, says) == NULL)) {
    fail_msg("\"%s\" (%s) instead of \"%s\"", error.what, error.hint, says);
  }
  free(again);
}

static void shards_are_one_model(void **state)
{
  (void)state;
  const struct plm_model_config model = model_case_small(PLM_TRANSFORMER);
  struct weights weights = weights_of(&model);
  unsigned char *bytes;
  struct plm_tensor_info *tensors = tensors_of(&weights, PLM_F32, &bytes);
  char folder[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  make_export("shards", &model, folder);
  drop(folder, "model.safetensors");
  const size_t half = weights.count / 2;
  path_in(folder, "a.safetensors", path);
  assert_int_equal(plm_safetensors_write(path, tensors, half, NULL, 0, NULL), PLM_OK);
  path_in(folder, "b.safetensors", path);
  assert_int_equal(plm_safetensors_write(path, tensors + half, weights.count - half, NULL, 0, NULL),
                   PLM_OK);
  static const struct {
    const char *first, *second; /* the shard of tensor 0, and of the rest of the first half */
    const char *says;
  } cases[] = {
      {"a.safetensors", "a.safetensors", NULL},
      {"b.safetensors", "a.safetensors", "is not in b.safetensors"},
      {"../shards/a.safetensors", "a.safetensors", "not a valid name of a shard"},
      {"c.safetensors", "a.safetensors", ", which holds tensor "},
      {NULL, "a.safetensors", "tensors, but the index"},
  };
  path_in(folder, "model.safetensors", path);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct plm_text index = {0};
    plm_text_puts(&index, "{\"metadata\":{\"total_size\":1.5},\"weight_map\":{");
    for (size_t i = cases[c].first == NULL; i < weights.count; i++)
      plm_text_printf(&index, "%s\"%s\":\"%s\"", i == (cases[c].first == NULL) ? "" : ",",
                      tensors[i].name,
                      i == 0     ? cases[c].first
                      : i < half ? cases[c].second
                                 : "b.safetensors");
    plm_text_puts(&index, "}}");
    put(folder, "model.safetensors.index.json", index.data);
    plm_text_deinit(&index);
    expect(folder, PLM_OK, "", "");
    expect_weights(path, &weights, cases[c].says);
    if (cases[c].says != NULL) continue;
    /* a value that is not finite is in the shard that the message names */
    char shard[PLM_PATH_SIZE], says[300];
    path_in(folder, "b.safetensors", shard);
    put_at(bytes, &tensors[half], 1, PLM_F32, (double)INFINITY);
    assert_int_equal(
        plm_safetensors_write(shard, tensors + half, weights.count - half, NULL, 0, NULL), PLM_OK);
    snprintf(says, sizeof says, "tensor %s of b.safetensors holds inf at element 1",
             tensors[half].name);
    expect_weights(path, &weights, says);
    put_at(bytes, &tensors[half], 1, PLM_F32,
           (double)weights.values[weights.table[half].offset + 1]);
    assert_int_equal(
        plm_safetensors_write(shard, tensors + half, weights.count - half, NULL, 0, NULL), PLM_OK);
  }
  put(folder, "model.safetensors.index.json", "{\"weight_map\":{}}");
  expect_weights(path, &weights, "weight_map");
  put(folder, "model.safetensors.index.json", "{\"weight_map\":{\"a\":1}}");
  expect_weights(path, &weights, "has no shard");
  put(folder, "model.safetensors.index.json", "[]");
  expect_weights(path, &weights, "does not begin with {");
  free(tensors);
  free(bytes);
  weights_free(&weights);
}

static void heads_come_with_their_models(void **state)
{
  (void)state;
  struct plm_model_config model = model_case_small(PLM_UNET);
  model.tie_embeddings = true;
  struct weights weights = weights_of(&model);
  unsigned char *bytes;
  struct plm_tensor_info *tensors = tensors_of(&weights, PLM_F32, &bytes);
  const char *path = scratch_path("head.safetensors");
  assert_string_equal(tensors[0].name, "plm.embeddings.weight");
  /* a tied model may store the second matrix if it equals the table */
  tensors[weights.count] = tensors[0];
  tensors[weights.count].name = "lm_head.decoder.weight";
  assert_int_equal(plm_safetensors_write(path, tensors, weights.count + 1, NULL, 0, NULL), PLM_OK);
  expect_weights(path, &weights, NULL);
  tensors[weights.count].data = bytes + 4;
  assert_int_equal(plm_safetensors_write(path, tensors, weights.count + 1, NULL, 0, NULL), PLM_OK);
  expect_weights(path, &weights,
                 "lm_head.decoder.weight is not the embedding table, but config.json says that the "
                 "model is tied");
  expect_weights(path, &weights, "set tie_embeddings and tie_word_embeddings to false");
  /* as AutoModel saves it: names without "plm.", no head */
  size_t kept = 0;
  for (size_t i = 0; i < weights.count; i++)
    if (strncmp(tensors[i].name, "plm.", 4) == 0) {
      tensors[kept] = tensors[i];
      tensors[kept++].name += 4;
    }
  assert_int_equal(plm_safetensors_write(path, tensors, kept, NULL, 0, NULL), PLM_OK);
  expect_weights(path, &weights, "saved from PLMModel, without the language model");
  free(tensors);
  free(bytes);
  weights_free(&weights);
}

static void a_model_that_is_not_tied_needs_a_head(void **state)
{
  (void)state;
  const struct plm_model_config model = model_case_small(PLM_UNET);
  struct weights weights = weights_of(&model);
  unsigned char *bytes;
  struct plm_tensor_info *tensors = tensors_of(&weights, PLM_F32, &bytes);
  const char *path = scratch_path("no_decoder.safetensors");
  for (size_t i = 0; i < weights.count; i++) {
    const bool decoder = strcmp(tensors[i].name, "lm_head.decoder.weight") == 0;
    const char *hint = decoder ? "then config.json needs tie_embeddings" : "is missing";
    struct plm_tensor_info kept = tensors[i];
    if (!decoder && strcmp(tensors[i].name, "lm_head.bias") != 0) continue;
    memmove(&tensors[i], &tensors[i + 1], (weights.count - 1 - i) * sizeof *tensors);
    assert_int_equal(plm_safetensors_write(path, tensors, weights.count - 1, NULL, 0, NULL),
                     PLM_OK);
    expect_weights(path, &weights, hint);
    memmove(&tensors[i + 1], &tensors[i], (weights.count - 1 - i) * sizeof *tensors);
    tensors[i] = kept;
  }
  free(tensors);
  free(bytes);
  weights_free(&weights);
}

static void a_u_net_counts_all_its_layers(void **state)
{
  (void)state;
  const struct plm_model_folder folder = {.model = model_case_small(PLM_PATCH_UNET)};
  const struct plm_folder_facts facts = {"PLMModel", "bfloat16", 7, 2000000, 2, PLM_HEAD_LM, false};
  struct plm_text text = {0};
  plm_folder_facts_print(&folder, &facts, &text);
  assert_non_null(strstr(text.data, "7 parameters in bfloat16, 5 layers of width 64 with 2 heads; "
                                    "2 shards, 2.0 MB; the language model's head"));
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_kinds_are_distinguished),
      cmocka_unit_test(a_folder_without_a_model_is_explained),
      cmocka_unit_test(another_model_is_named_by_its_keys),
      cmocka_unit_test(keys_that_may_differ_are_noted),
      cmocka_unit_test(every_float_dtype_is_read),
      cmocka_unit_test(shards_are_one_model),
      cmocka_unit_test(heads_come_with_their_models),
      cmocka_unit_test(a_model_that_is_not_tied_needs_a_head),
      cmocka_unit_test(a_u_net_counts_all_its_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
