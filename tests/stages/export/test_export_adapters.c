/* `export` of a model with adapters, and of one that takes adapters of PEFT: which weights come
 * out, and which requests are refused. */
#include "stages/export/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

/* A model whose blocks have adapters of rank 2 for two products, and the same without them. */
struct model {
  struct plm_model_config config;
  struct plm_parameter *table;
  size_t count, elements;
  float *values;
};

static struct model adapted, plain;
static char adapted_folder[PLM_PATH_SIZE], plain_folder[PLM_PATH_SIZE];
static const double factor = 1.5; /* alpha / rank */

static void make_model(struct model *model, uint32_t rank)
{
  struct plm_error error = {0};
  model->config = case_config(PLM_TRANSFORMER, 2, 32);
  model->config.vocab_size = 33;
  if (rank > 0)
    model->config.lora = (struct plm_lora_config){
        .rank = rank, .alpha = 3, .targets = 1u << PLM_LORA_Q | 1u << PLM_LORA_DOWN};
  must_work(
      plm_model_parameters(&model->config, &model->table, &model->count, &model->elements, &error),
      &error);
  model->values = must(calloc(model->elements, sizeof *model->values));
  case_weights(model->table, model->count, 3, model->values);
}

static void save_model(const struct model *model, const char *folder)
{
  char path[PLM_PATH_SIZE];
  char *text = plm_huggingface_config_print(&model->config, 32, PLM_OBJECTIVE_MLM);
  assert_int_equal(plm_directory_make(folder, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, folder, "config.json", NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
  free(text);
  assert_int_equal(plm_path_join(path, folder, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_write(path, model->table, model->count, model->values, NULL),
                   PLM_OK);
}

static const struct plm_parameter *find(const struct model *model, const char *name)
{
  for (size_t i = 0; i < model->count; i++)
    if (strcmp(model->table[i].name, name) == 0) return &model->table[i];
  return NULL;
}

/* Both models have the same values where they have the same parameters. */
static int begin(void **state)
{
  (void)state;
  make_model(&adapted, 2);
  make_model(&plain, 0);
  for (size_t i = 0; i < plain.count; i++) {
    const struct plm_parameter *same = find(&adapted, plain.table[i].name);
    memcpy(plain.values + plain.table[i].offset, adapted.values + same->offset,
           same->count * sizeof(float));
  }
  snprintf(adapted_folder, sizeof adapted_folder, "%s", scratch_path("adapted"));
  snprintf(plain_folder, sizeof plain_folder, "%s", scratch_path("plain"));
  save_model(&adapted, adapted_folder);
  save_model(&plain, plain_folder);
  plm_log_init("t", PLM_LOG_ERROR);
  return 0;
}

static int end(void **state)
{
  (void)state;
  free(adapted.table);
  free(adapted.values);
  free(plain.table);
  free(plain.values);
  return 0;
}

static void export_with(struct plm_export_request *request, struct plm_export_result *result,
                        char output[PLM_PATH_SIZE])
{
  struct plm_error error = {0};
  scratch_run(output);
  request->output = output;
  must_work(plm_export_check(request, &error), &error);
  must_work(plm_export(request, result, &error), &error);
}

/* W + (alpha / rank) B A of each product that has adapters; else W. */
static void expect_folded(const char *output)
{
  char path[PLM_PATH_SIZE];
  struct plm_error error = {0};
  float *read = must(calloc(plain.elements, sizeof *read));
  int folded = 0;
  assert_int_equal(plm_path_join(path, output, "model.safetensors", NULL), PLM_OK);
  must_work(plm_parameters_read(path, plain.table, plain.count, read, &error), &error);
  for (size_t p = 0; p < plain.count; p++) {
    const struct plm_parameter *of = &plain.table[p];
    const float *w = plain.values + of->offset, *got = read + of->offset;
    char name[128];
    const int stem = (int)strlen(of->name) - (int)strlen(".weight");
    snprintf(name, sizeof name, "%.*s.lora_A.weight", stem, of->name);
    const struct plm_parameter *a = find(&adapted, name);
    snprintf(name, sizeof name, "%.*s.lora_B.weight", stem, of->name);
    const struct plm_parameter *b = find(&adapted, name);
    if (a == NULL) {
      assert_memory_equal(got, w, of->count * sizeof *w);
      continue;
    }
    folded++;
    for (int64_t row = 0; row < of->rows; row++)
      for (int64_t col = 0; col < of->cols; col++) {
        double sum = 0;
        for (int64_t r = 0; r < 2; r++)
          sum += (double)adapted.values[b->offset + (size_t)(row * 2 + r)] *
                 (double)adapted.values[a->offset + (size_t)(r * of->cols + col)];
        const double expected = (double)w[row * of->cols + col] + factor * sum;
        assert_true(fabs((double)got[row * of->cols + col] - expected) <=
                    1e-6 * (1 + fabs(expected)));
      }
  }
  assert_int_equal(folded, 4); /* two products in each of two blocks */
  free(read);
}

static void adapters_are_merged(void **state)
{
  (void)state;
  struct plm_export_request request = {.input = adapted_folder, .merge = true};
  struct plm_export_result result;
  char output[PLM_PATH_SIZE];
  uint64_t parameters = 0;
  export_with(&request, &result, output);
  expect_folded(output);
  for (size_t i = 0; i < plain.count; i++) parameters += plain.table[i].count;
  assert_int_equal(result.parameters, parameters);
  assert_string_equal(result.dtype, "float32");
  struct plm_model_config config;
  assert_int_equal(plm_huggingface_config_read(output, &config, NULL, NULL, NULL), PLM_OK);
  assert_int_equal(config.lora.rank, 0);
  assert_int_equal(plm_path_remove(output, NULL), PLM_OK);
}

/* Only the adapters are written; folded into the same base, they give the merged model. */
static void adapters_go_to_peft_and_back(void **state)
{
  (void)state;
  struct plm_export_request request = {.input = adapted_folder, .adapter = true};
  struct plm_export_result result;
  char adapter[PLM_PATH_SIZE], output[PLM_PATH_SIZE], path[PLM_PATH_SIZE];
  uint64_t parameters = 0, size = 0;
  export_with(&request, &result, adapter);
  for (size_t i = 0; i < adapted.count; i++)
    if (adapted.table[i].adapter != 0) parameters += adapted.table[i].count;
  assert_int_equal(result.parameters, parameters);
  assert_string_equal(result.dtype, "float32");
  assert_int_equal(plm_path_join(path, adapter, "adapter_model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_file_size(path, &size, NULL), PLM_OK);
  assert_int_equal(result.bytes, size);
  static const char *const absent[] = {"model.safetensors", "config.json", "README.md"};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(plm_path_join(path, adapter, absent[i], NULL), PLM_OK);
    assert_false(plm_file_exists(path));
  }
  request =
      (struct plm_export_request){.input = plain_folder, .merge = true, .with_adapter = adapter};
  export_with(&request, &result, output);
  expect_folded(output);
  assert_int_equal(plm_path_remove(adapter, NULL), PLM_OK);
  assert_int_equal(plm_path_remove(output, NULL), PLM_OK);
}

static void other_requests_are_refused(void **state)
{
  (void)state;

  const struct {
    struct plm_export_request request;
    plm_status status;
    const char *what, *hint;
    bool where;
  } rows[] = {
      {{.input = adapted_folder},
       PLM_CONFIG,
       "the model has adapters beside its weights (LoRA)",
       "give --merge to fold them into the weights, or --adapter to write only them, for PEFT",
       true},
      {{.input = adapted_folder, .merge = true, .adapter = true},
       PLM_USAGE,
       "--merge and --adapter exclude each other",
       "",
       false},
      {{.input = adapted_folder, .adapter = true, .license = "mit"},
       PLM_USAGE,
       "--license is for the model card, and --adapter writes none: leave it out",
       "",
       false},
      {{.input = adapted_folder, .adapter = true, .name = "a"},
       PLM_USAGE,
       "--name is for the model card, and --adapter writes none: leave it out",
       "",
       false},
      {{.input = plain_folder, .with_adapter = "x"},
       PLM_USAGE,
       "--with-adapter needs --merge",
       "",
       false},
      {{.input = adapted_folder, .with_adapter = "x", .merge = true},
       PLM_CONFIG,
       "--with-adapter: the model already has adapters",
       "fold its own adapters in first, with only --merge",
       true},
      {{.input = plain_folder, .merge = true},
       PLM_CONFIG,
       "the model has no adapters",
       "leave --merge and --adapter out, or name an adapter of PEFT with --with-adapter DIR",
       true},
      {{.input = plain_folder, .adapter = true},
       PLM_CONFIG,
       "the model has no adapters",
       "leave --merge and --adapter out, or name an adapter of PEFT with --with-adapter DIR",
       true},
      {{.input = plain_folder, .dtype = "float16"},
       PLM_USAGE,
       "--dtype must be float32 or bfloat16, not \"float16\"",
       "",
       false},
      {{.input = plain_folder, .license = "gpl3.0"},
       PLM_USAGE,
       "\"gpl3.0\" is not in the Hub's list of licences",
       "did you mean gpl-3.0?",
       false},
      {{.input = plain_folder, .license = "proprietary"},
       PLM_USAGE,
       "\"proprietary\" is not in the Hub's list of licences",
       "see https://huggingface.co/docs/hub/repositories-licenses; for any other licence, give "
       "`other` and add a LICENSE file to the folder",
       false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_export_request request = rows[i].request;
    struct plm_export_result result;
    struct plm_error error = {0};
    char output[PLM_PATH_SIZE];
    snprintf(output, sizeof output, "%s", scratch_path("never"));
    request.output = output;
    for (int both = 0; both < 2; both++) {
      error = (struct plm_error){0};
      const plm_status status =
          both == 0 ? plm_export_check(&request, &error) : plm_export(&request, &result, &error);
      assert_string_equal(error.what, rows[i].what);
      assert_int_equal(status, rows[i].status);
      assert_string_equal(error.hint, rows[i].hint);
      assert_int_equal(error.where[0] != '\0', rows[i].where);
    }
    assert_false(plm_file_exists(output));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adapters_are_merged),
      cmocka_unit_test(adapters_go_to_peft_and_back),
      cmocka_unit_test(other_requests_are_refused),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
