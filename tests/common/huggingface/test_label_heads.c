/* Heads for labels in folders: config.json and back, what transformers leaves out of it, and
 * weights of another head, beside which the new one is drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/checkpoint/parameter_file.h"
#include "common/huggingface/head_json.h"
#include "common/huggingface/huggingface.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_memory.h"
#include "tests/support/harness/scratch.h"

static struct plm_model_config esm2(void)
{
  struct plm_model_config config = model_case_small(PLM_ESM2);
  config.expansion_ratio = config.soft_logit_cap = 0;
  config.intermediate_size = 96;
  config.layer_norm_eps = 1e-5;
  config.tie_embeddings = config.token_dropout = true;
  config.num_unet_layers = config.num_extra_layers = 0;
  config.max_positions = config.max_length;
  return config;
}

static struct plm_model_config with_head(struct plm_model_config config, enum plm_head_kind kind,
                                         enum plm_label_loss loss, enum plm_head_pooling pooling,
                                         uint32_t hidden)
{
  config.head = (struct plm_head_config){kind, loss, pooling, hidden, 3, 0.125};
  return config;
}

static void same_head(const struct plm_head_config *a, const struct plm_head_config *b)
{
  assert_true(a->kind == b->kind && a->loss == b->loss && a->hidden == b->hidden);
  assert_true(a->outputs == b->outputs && a->dropout == b->dropout);
  assert_true(a->kind == PLM_PREDICTS_RESIDUES || a->pooling == b->pooling);
}

/* Prints config.json into the folder, and reads the model and the names back. */
static void goes_round(const struct plm_model_config *model, const char *class_name)
{
  char *names[] = {"alpha", "b \"quoted\"", "γ"};
  double mean[] = {1.5, -2, 0.1 + 0.2}, deviation[] = {0.1, 1, 1e5 / 3};
  struct plm_label_names labels = {3, names, mean, deviation}, found;
  struct plm_model_config again;
  char name[PLM_HEAD_CLASS_SIZE];
  struct plm_error error = {0};
  const char *folder = scratch_directory();
  char *text =
      plm_huggingface_config_print_labels(model, 64, PLM_OBJECTIVE_MLM, "float32", &labels);
  scratch_write(scratch_path("config.json"), text, strlen(text));
  assert_string_equal(plm_head_class(model, name), class_name);
  assert_non_null(strstr(text, class_name));
  if (plm_huggingface_config_read(folder, &again, NULL, NULL, &error) != PLM_OK)
    fail_msg("%s", error.what);
  same_head(&again.head, &model->head);
  assert_int_equal(plm_label_names_read(folder, &again, &found, &error), PLM_OK);
  for (uint32_t i = 0; i < 3; i++) {
    assert_string_equal(found.names[i], names[i]);
    assert_true(found.mean[i] == mean[i] && found.deviation[i] == deviation[i]);
  }
  plm_label_names_deinit(&found);
  free(text);
}

static void heads_go_round(void **state)
{
  const struct plm_model_config ours = model_case_small(PLM_TRANSFORMER), theirs = esm2();
  struct plm_model_config config;
  (void)state;
  config = with_head(ours, PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_CLS, 24);
  goes_round(&config, "PLMForSequenceClassification");
  config = with_head(ours, PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASSES, PLM_HEAD_MEAN, 0);
  goes_round(&config, "PLMForSequenceClassification");
  config = with_head(ours, PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0);
  goes_round(&config, "PLMForTokenClassification");
  config = with_head(theirs, PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 64);
  goes_round(&config, "EsmForSequenceClassification");
  config = with_head(theirs, PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0);
  goes_round(&config, "EsmForTokenClassification");
}

/* transformers' class has no mean and no other width. */
static void other_heads_of_published_weights_are_refused(void **state)
{
  struct plm_error error = {0};
  (void)state;
  struct plm_model_config config =
      with_head(esm2(), PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 64);
  assert_int_equal(plm_model_config_check(&config, &error), PLM_CONFIG);
  assert_string_equal(error.where, "head.pooling");
  config = with_head(esm2(), PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 32);
  assert_int_equal(plm_model_config_check(&config, &error), PLM_CONFIG);
  assert_string_equal(error.where, "head.hidden_size");
  /* the same in config.json */
  static const char *const own[][2] = {{"{\"pooling\":\"mean\"}", "head.pooling"},
                                       {"{\"hidden_size\":32}", "head.hidden_size"},
                                       {"{\"dropout\":1}", "head.dropout"},
                                       {"{\"dropout\":0.5}", NULL}};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    char text[200];
    config = esm2();
    config.head.outputs = 7;
    snprintf(text, sizeof text,
             "{\"architectures\":[\"EsmForSequenceClassification\"],\"num_labels\":3,"
             "\"plm_pipeline\":{\"head\":%s}}",
             own[i][0]);
    cJSON *json = cJSON_Parse(text);
    const plm_status status = plm_head_config_parse(json, &config, &error);
    cJSON_Delete(json);
    assert_int_equal(status, own[i][1] != NULL ? PLM_CONFIG : PLM_OK);
    if (own[i][1] != NULL) assert_string_equal(error.where, own[i][1]);
    assert_int_equal(config.head.outputs, own[i][1] != NULL ? 0 : 3);
  }
}

static float *values_of(struct model_case *c)
{
  const size_t bytes = plm_model_arena_elements(c->model) * sizeof(float);
  float *values = malloc(bytes);
  assert_non_null(values);
  c->ops->download(c->ops, values, plm_model_parameter_arena(c->model), bytes);
  return values;
}

/* The trunk comes from a file of the language model, and the head from the seed. */
static void new_heads_are_drawn(void **state)
{
  const struct plm_model_options options = {.max_chunks = 1};
  const struct plm_model_config lm = esm2();
  const struct plm_model_config config =
      with_head(lm, PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 64);
  struct model_case from, to;
  size_t count, old_count;
  struct plm_error error = {0};
  const char *folder = scratch_directory();
  (void)state;
  model_case_open(&from, &lm, &options, PLM_PRECISION_FP32, 3);
  model_case_open(&to, &config, &options, PLM_PRECISION_FP32, 4);
  const struct plm_parameter *table = plm_model_table(to.model, &count);
  const struct plm_parameter *old = plm_model_table(from.model, &old_count);
  float *weights = values_of(&from);
  float *drawn = calloc(plm_model_arena_elements(to.model), sizeof *drawn);
  assert_non_null(drawn);
  plm_model_initialise(table, count, 7, drawn);
  assert_int_equal(
      plm_parameters_write(scratch_path("model.safetensors"), old, old_count, weights, NULL),
      PLM_OK);
  /* with its own head, the model does not take the file */
  assert_int_equal(plm_parameters_load(folder, "model.safetensors", to.model, NULL, &error),
                   PLM_FORMAT);
  assert_string_equal(error.what, "the file has no classifier (classifier.*)");
  const struct plm_new_parts parts = {.head = true, .seed = 7};
  float *loaded = weights;
  assert_int_equal(plm_parameters_fetch_with(folder, "none.safetensors", to.model, &parts, NULL,
                                             &loaded, &error),
                   PLM_NOT_FOUND);
  assert_null(loaded);
  if (plm_parameters_fetch_with(folder, "model.safetensors", to.model, &parts, NULL, &loaded,
                                &error) != PLM_OK)
    fail_msg("%s", error.what);
  for (size_t i = 0; i < count; i++) {
    const bool head = table[i].group == PLM_GROUP_HEAD;
    assert_true(head || strcmp(table[i].name, old[i].name) == 0); /* the head comes last */
    const float *expected = head ? drawn + table[i].offset : weights + old[i].offset;
    assert_memory_equal(loaded + table[i].offset, expected, table[i].count * sizeof(float));
  }
  /* the trunk of a file is taken without its head */
  float *trunk = calloc(plm_model_arena_elements(to.model), sizeof *trunk);
  assert_non_null(trunk);
  assert_int_equal(
      plm_parameters_write(scratch_path("model.safetensors"), table, count, loaded, NULL), PLM_OK);
  assert_int_equal(
      plm_parameters_read_trunk(scratch_path("model.safetensors"), table, count, trunk, &error),
      PLM_OK);
  for (size_t i = 0; i < count; i++)
    for (size_t k = table[i].offset; k < table[i].offset + table[i].count; k++)
      assert_true(trunk[k] == (table[i].group == PLM_GROUP_HEAD ? 0 : loaded[k]));
  free(trunk);
  free(loaded);
  free(drawn);
  free(weights);
  model_case_close(&from);
  model_case_close(&to);
}

static plm_status load(void *context, struct plm_error *error)
{
  return plm_parameters_load(scratch_directory(), "model.safetensors", context, NULL, error);
}

static void weights_need_memory(void **state)
{
  const struct plm_model_options options = {.max_chunks = 1};
  const struct plm_model_config config = model_case_small(PLM_TRANSFORMER);
  struct model_case c;
  size_t count;
  (void)state;
  if (!CHECKED_MEMORY) skip("a sanitizer brings its own malloc");
  model_case_open(&c, &config, &options, PLM_PRECISION_FP32, 3);
  const struct plm_parameter *table = plm_model_table(c.model, &count);
  assert_int_equal(
      plm_parameters_write(scratch_path("model.safetensors"), table, count, c.weights, NULL),
      PLM_OK);
  failing_memory_try(load, c.model, 1);
  float *loaded = values_of(&c);
  assert_memory_equal(loaded, c.weights, plm_model_arena_elements(c.model) * sizeof *loaded);
  free(loaded);
  model_case_close(&c);
}

/* What transformers itself reads: a rate is never a whole number, as its class of ESM C wants it.
 */
static void keys_of_transformers_are_written(void **state)
{
  (void)state;
  static const struct {
    double dropout;
    const char *text;
  } rates[] = {{0, "0.0"}, {0.125, "0.125"}, {1e-20, "1e-20"}, {0.1 + 0.2, "0.30000000000000004"}};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    struct plm_model_config config = {.architecture = PLM_ESMC, .max_length = 32};
    config.head = (struct plm_head_config){
        PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 8, 2, rates[i].dropout};
    cJSON *json = cJSON_Parse("{\"architectures\":[\"x\"],\"classifier_dropout\":7}");
    plm_head_config_print(&config, NULL, json);
    char *text = cJSON_PrintUnformatted(json), expected[500];
    snprintf(
        expected, sizeof expected,
        "{\"architectures\":[\"EsmcForSequenceClassification\"],\"problem_type\":"
        "\"single_label_classification\",\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\"},"
        "\"label2id\":{\"LABEL_0\":0,\"LABEL_1\":1},\"classifier_dropout\":%s,\"plm_pipeline\":"
        "{\"max_length\":32,\"objective\":\"mlm\",\"head\":{\"pooling\":\"cls\",\"hidden_size\":8,"
        "\"dropout\":",
        rates[i].text);
    if (strncmp(text, expected, strlen(expected)) != 0) fail_msg("%s is not %s", text, expected);
    cJSON_free(text);
    cJSON_Delete(json);
  }
  struct plm_head_config head = {.kind = PLM_PREDICTS_TOKENS};
  assert_string_equal(plm_head_auto_class(&head), "AutoModelForMaskedLM");
  head.kind = PLM_PREDICTS_RESIDUES;
  assert_string_equal(plm_head_auto_class(&head), "AutoModelForTokenClassification");
  head.kind = PLM_PREDICTS_SEQUENCES;
  assert_string_equal(plm_head_auto_class(&head), "AutoModelForSequenceClassification");
}

#define SEQUENCES "\"architectures\":[\"EsmForSequenceClassification\"]"
#define RESIDUES "\"architectures\":[\"EsmForTokenClassification\"]"

/* What the keys of transformers mean, what it takes for granted, and what is none of them. */
static void keys_of_transformers_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    struct plm_head_config head;
    const char *where, *what;
  } rows[] = {
      {"{}", {0}, NULL, NULL},
      {"{\"architectures\":[\"EsmForMaskedLM\"]}", {0}, NULL, NULL},
      {"{\"architectures\":[7]}", {0}, NULL, NULL},
      {"{" SEQUENCES "}",
       {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 64, 2, 0},
       NULL,
       NULL},
      {"{" SEQUENCES ",\"num_labels\":1,\"hidden_dropout_prob\":0.25}",
       {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_CLS, 64, 1, 0.25},
       NULL,
       NULL},
      {"{" SEQUENCES ",\"num_labels\":1,\"problem_type\":\"multi_label_classification\"}",
       {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASSES, PLM_HEAD_CLS, 64, 1, 0},
       NULL,
       NULL},
      {"{" SEQUENCES ",\"num_labels\":3,\"problem_type\":\"regression\",\"id2label\":null}",
       {PLM_PREDICTS_SEQUENCES, PLM_LOSS_SQUARES, PLM_HEAD_CLS, 64, 3, 0},
       NULL,
       NULL},
      {"{" SEQUENCES ",\"num_labels\":7,\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}}",
       {PLM_PREDICTS_SEQUENCES, PLM_LOSS_CLASS, PLM_HEAD_CLS, 64, 3, 0},
       NULL,
       NULL},
      {"{" RESIDUES ",\"num_labels\":1,\"problem_type\":\"regression\"}",
       {PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 1, 0},
       NULL,
       NULL},
      {"{" RESIDUES ",\"plm_pipeline\":{\"head\":{\"dropout\":0.5}},\"hidden_dropout_prob\":0.25}",
       {PLM_PREDICTS_RESIDUES, PLM_LOSS_CLASS, PLM_HEAD_MEAN, 0, 2, 0.5},
       NULL,
       NULL},
      {"{" SEQUENCES ",\"problem_type\":\"beauty\"}",
       {0},
       "problem_type",
       "\"problem_type\" is not regression, single_label_classification or "
       "multi_label_classification"},
      {"{" SEQUENCES ",\"problem_type\":1}",
       {0},
       "problem_type",
       "\"problem_type\" is not regression, single_label_classification or "
       "multi_label_classification"},
      {"{" SEQUENCES ",\"id2label\":[\"a\"]}",
       {0},
       "id2label",
       "\"id2label\" is not an object that names each output"},
      {"{" SEQUENCES ",\"num_labels\":-1}",
       {0},
       "num_labels",
       "\"num_labels\" is not a whole number in its range"},
      {"{" SEQUENCES ",\"num_labels\":1.5}",
       {0},
       "num_labels",
       "\"num_labels\" is not a whole number in its range"},
      {"{" SEQUENCES ",\"num_labels\":131073}",
       {0},
       "num_labels",
       "\"num_labels\" is not a whole number in its range"},
      {"{" SEQUENCES ",\"num_labels\":\"2\"}",
       {0},
       "num_labels",
       "\"num_labels\" is not a whole number in its range"},
      {"{" SEQUENCES ",\"plm_pipeline\":{\"head\":{\"pooling\":\"max\"}}}",
       {0},
       "head.pooling",
       "\"head.pooling\" is not mean or cls"},
      {"{" SEQUENCES ",\"plm_pipeline\":{\"head\":{\"hidden_size\":65537}}}",
       {0},
       "head.hidden_size",
       "\"head.hidden_size\" is not a whole number in its range"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_model_config config = {.architecture = PLM_ESM2, .hidden_size = 64};
    struct plm_error error = {0};
    config.head.outputs = 99;
    cJSON *json = cJSON_Parse(rows[i].text);
    const plm_status status = plm_head_config_parse(json, &config, &error);
    cJSON_Delete(json);
    assert_string_equal(error.what, rows[i].what != NULL ? rows[i].what : "");
    assert_int_equal(status, rows[i].what != NULL ? PLM_FORMAT : PLM_OK);
    if (rows[i].where != NULL) assert_string_equal(error.where, rows[i].where);
    same_head(&config.head, &rows[i].head);
  }
}

static void names_of_outputs_are_checked(void **state)
{
  (void)state;
  static const char names[] = "\"id2label\" is not an object that names the outputs 0, 1, ...",
                    list[] = "\"head.scaling\" is not a list with a pair for each output",
                    pairs[] = "\"head.scaling\" is not a list of pairs of numbers";
  static const struct {
    const char *text, *what; /* NULL: the names are b and LABEL_1 */
  } rows[] = {
      {"{\"id2label\":{\"0\":\"b\"}}", NULL},
      {"{\"id2label\":{\"0\":\"b\"},\"head\":{\"scaling\":[[1,2],[3,4]]}}", NULL},
      {"{", "byte 0 of the JSON: invalid JSON"},
      {"{\"id2label\":{\"2\":\"b\"}}", names},
      {"{\"id2label\":{\"x\":\"b\"}}", names},
      {"{\"id2label\":{\"0x\":\"b\"}}", names},
      {"{\"id2label\":{\"\":\"b\"}}", names},
      {"{\"id2label\":{\"0\":\"b\",\"00\":\"c\"}}", names}, /* twice */
      {"{\"id2label\":{\"0\":7}}", names},
      {"{\"id2label\":{\"0\":\"b\"},\"head\":{\"scaling\":[[1,2]]}}", list},
      {"{\"id2label\":{\"0\":\"b\"},\"head\":{\"scaling\":[[1,2],[3,4],[5,6]]}}", list},
      {"{\"id2label\":{\"0\":\"b\"},\"head\":{\"scaling\":[[1,2],[3]]}}", pairs},
      {"{\"id2label\":{\"0\":\"b\"},\"head\":{\"scaling\":[[1,2],[\"3\",4]]}}", pairs},
  };
  const struct plm_model_config config = {.architecture = PLM_UNET, .head = {.outputs = 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_label_names found;
    struct plm_error error = {0};
    scratch_write(scratch_path("config.json"), rows[i].text, strlen(rows[i].text));
    const plm_status status = plm_label_names_read(scratch_directory(), &config, &found, &error);
    assert_string_equal(error.what, rows[i].what != NULL ? rows[i].what : "");
    assert_int_equal(found.count, status == PLM_OK ? 2 : 0);
    assert_string_equal(error.where, status == PLM_OK ? "" : scratch_path("config.json"));
    if (status != PLM_OK) continue;
    assert_string_equal(found.names[0], "b");
    assert_string_equal(found.names[1], "LABEL_1");
    assert_int_equal(found.mean != NULL, i == 1);
    if (i == 1) assert_true(found.mean[1] == 3 && found.deviation[1] == 4);
    plm_label_names_unscale(&found);
    assert_null(found.mean);
    plm_label_names_deinit(&found);
  }
}

static void a_missing_head_is_said(void **state)
{
  (void)state;
  static const char *const rows[][2] = {
      {"{\"architectures\":[\"EsmForMaskedLM\"]}", "[\"EsmForMaskedLM\"]"},
      {"{\"architectures\":null}", "missing"},
      {"{}", "missing"}};
  char folder[200], what[200];
  snprintf(folder, sizeof folder, "%.199s", scratch_directory());
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_error error = {0};
    scratch_write(scratch_path("config.json"), rows[i][0], strlen(rows[i][0]));
    assert_int_equal(plm_head_missing(folder, &error), PLM_CONFIG);
    snprintf(what, sizeof what,
             "this model has no head for labels: \"architectures\" in config.json is %s",
             rows[i][1]);
    assert_string_equal(error.what, what);
    assert_string_equal(error.where, folder);
    assert_string_equal(error.hint, "train it on labels first (doc/fine-tuning.md)");
  }
  struct plm_error error = {0};
  assert_int_equal(unlink(scratch_path("config.json")), 0);
  assert_int_equal(plm_head_missing(folder, &error), PLM_NOT_FOUND);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_go_round),
      cmocka_unit_test(other_heads_of_published_weights_are_refused),
      cmocka_unit_test(new_heads_are_drawn),
      cmocka_unit_test(weights_need_memory),
      cmocka_unit_test(keys_of_transformers_are_written),
      cmocka_unit_test(a_missing_head_is_said),
      cmocka_unit_test(keys_of_transformers_are_read),
      cmocka_unit_test(names_of_outputs_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
