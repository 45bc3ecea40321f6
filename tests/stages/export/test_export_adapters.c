/* `export` of a model with adapters, and of one that takes adapters of PEFT: which weights come
 * out, and which requests are refused. */
#include "stages/export/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/captured.h"
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

static void make_model(struct model *model, uint32_t rank, uint32_t tokens,
                       struct plm_head_config head)
{
  struct plm_error error = {0};
  model->config = case_config(PLM_TRANSFORMER, 2, 32);
  model->config.vocab_size = tokens;
  model->config.head = head;
  if (rank > 0)
    model->config.lora = (struct plm_lora_config){
        .rank = rank, .alpha = 3, .targets = 1u << PLM_LORA_Q | 1u << PLM_LORA_DOWN};
  must_work(
      plm_model_parameters(&model->config, &model->table, &model->count, &model->elements, &error),
      &error);
  model->values = must(calloc(model->elements, sizeof *model->values));
  case_weights(model->table, model->count, 3, model->values);
}

/* first: the name of the first output of a head, and of the others; those of numbers are scaled. */
static void save_model(const struct model *model, const char *folder, const char *first)
{
  char path[PLM_PATH_SIZE];
  double mean = 2, deviation = 3;
  char *names[] = {(char *)first, (char *)"b", (char *)"c"};
  struct plm_label_names labels = {.count = model->config.head.outputs, .names = names};
  if (labels.count == 1) labels.mean = &mean, labels.deviation = &deviation;
  char *text = plm_huggingface_config_print_labels(&model->config, 32, PLM_OBJECTIVE_MLM, "float32",
                                                   first != NULL ? &labels : NULL);
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
  make_model(&adapted, 2, 33, (struct plm_head_config){0});
  make_model(&plain, 0, 33, (struct plm_head_config){0});
  for (size_t i = 0; i < plain.count; i++) {
    const struct plm_parameter *same = find(&adapted, plain.table[i].name);
    memcpy(plain.values + plain.table[i].offset, adapted.values + same->offset,
           same->count * sizeof(float));
  }
  snprintf(adapted_folder, sizeof adapted_folder, "%s", scratch_path("adapted"));
  snprintf(plain_folder, sizeof plain_folder, "%s", scratch_path("plain"));
  save_model(&adapted, adapted_folder, NULL);
  save_model(&plain, plain_folder, NULL);
  plm_log_init("t", PLM_LOG_ERROR);
  return 0;
}

static void free_model(struct model *model)
{
  free(model->table);
  free(model->values);
}

static int end(void **state)
{
  (void)state;
  free_model(&adapted);
  free_model(&plain);
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

/* The exported head is that of the model with adapters. */
static void expect_head(const char *output, const struct model *labelled,
                        const struct model *trained)
{
  char path[PLM_PATH_SIZE];
  float *read = must(calloc(labelled->elements, sizeof *read));
  size_t compared = 0;
  assert_int_equal(plm_path_join(path, output, "model.safetensors", NULL), PLM_OK);
  assert_int_equal(plm_parameters_read(path, labelled->table, labelled->count, read, NULL), PLM_OK);
  for (size_t p = 0; p < labelled->count; p++) {
    const struct plm_parameter *of = &labelled->table[p];
    if (of->group != PLM_GROUP_HEAD) continue;
    assert_memory_equal(read + of->offset, trained->values + find(trained, of->name)->offset,
                        of->count * sizeof *read);
    compared++;
  }
  assert_int_equal(compared, 2);
  free(read);
}

/* What the outputs of an adapter's head mean is in its config.json, or, without one, in that of a
 * base with such a head. */
static void the_meaning_of_a_head_is_told(void **state)
{
  static const struct plm_head_config heads[] = {
      {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 3, 0},
      {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_MEAN, 0, 1, 0},
      {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 2, 0}};
  static const char *const first[] = {"of the adapter", "LABEL_0", "of the base"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    const char *scaled = i == 0 ? "" : ", which are not scaled,";
    struct model models[3]; /* with the adapter, with such a head, and with another one */
    char folders[3][PLM_PATH_SIZE], adapter[PLM_PATH_SIZE], output[PLM_PATH_SIZE],
        path[PLM_PATH_SIZE], expected[3][3 * PLM_PATH_SIZE];
    for (int k = 0; k < 3; k++) {
      make_model(&models[k], k == 0 ? 2 : 0, 33, heads[k == 2 ? k : i]);
      scratch_run(folders[k]);
      save_model(&models[k], folders[k], k == 0 ? first[0] : first[2]);
    }
    struct plm_export_request request = {.input = folders[0], .adapter = true};
    struct plm_export_result result;
    export_with(&request, &result, adapter);
    assert_int_equal(plm_path_join(path, adapter, "config.json", NULL), PLM_OK);
    snprintf(expected[0], sizeof expected[0],
             "t: %s/config.json says what the outputs of the adapter's head are\n", adapter);
    snprintf(expected[1], sizeof expected[1],
             "t: %s has no config.json: its outputs%s are called LABEL_0, LABEL_1, ...\n", adapter,
             scaled);
    snprintf(expected[2], sizeof expected[2],
             "t: %s has no config.json: the names of its outputs%s are those in %s\n", adapter,
             scaled, folders[1]);
    for (int how = 0; how < 3; how++) {
      if (how == 1) assert_int_equal(unlink(path), 0);
      request = (struct plm_export_request){.input = how == 0 ? plain_folder : folders[3 - how],
                                            .merge = true,
                                            .with_adapter = adapter};
      plm_log_init("t", PLM_LOG_INFO);
      captured_begin(STDERR_FILENO);
      export_with(&request, &result, output);
      const char *said = captured_end();
      plm_log_init("t", PLM_LOG_ERROR);
      if (strstr(said, expected[how]) == NULL) fail_msg("%s lacks %s", said, expected[how]);
      expect_head(output, &models[1], &models[0]);
      struct plm_label_names labels;
      assert_int_equal(plm_label_names_read(output, &models[1].config, &labels, NULL), PLM_OK);
      assert_string_equal(labels.names[0], first[how]);
      assert_int_equal(labels.mean != NULL, i == 1 && how == 0);
      plm_label_names_deinit(&labels);
      assert_int_equal(plm_path_remove(output, NULL), PLM_OK);
    }
    for (int k = 0; k < 3; k++) free_model(&models[k]);
  }
}

static void a_model_without_a_tokenizer_is_refused(void **state)
{
  struct model odd;
  char folder[PLM_PATH_SIZE], output[PLM_PATH_SIZE];
  struct plm_export_result result;
  struct plm_error error = {0};
  (void)state;
  make_model(&odd, 0, 40, (struct plm_head_config){0});
  scratch_run(folder);
  save_model(&odd, folder, NULL);
  free_model(&odd);
  snprintf(output, sizeof output, "%s", scratch_path("odd"));
  const struct plm_export_request request = {.input = folder, .output = output};
  assert_int_equal(plm_export(&request, &result, &error), PLM_UNSUPPORTED);
  assert_string_equal(error.what, "no tokenizer has 40 tokens");
  assert_false(plm_file_exists(output));
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
      cmocka_unit_test(the_meaning_of_a_head_is_told),
      cmocka_unit_test(a_model_without_a_tokenizer_is_refused),
      cmocka_unit_test(other_requests_are_refused),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
