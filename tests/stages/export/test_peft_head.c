/* The head for labels that an adapter in PEFT's format brings along. */
#include "stages/export/peft_head.h"

#include <stdio.h>

#include "tests/stages/export/peft_files.h"
#include "tests/support/cases/model_case.h"

static void names_of_a_head(void **state)
{
  (void)state;
  assert_true(plm_peft_is_of_head("classifier.weight"));
  assert_true(plm_peft_is_of_head("score.weight"));
  assert_false(plm_peft_is_of_head("classifiers.weight"));
  assert_false(plm_peft_is_of_head("scores.weight"));
  assert_false(plm_peft_is_of_head("classifier.out_proj.lora_A.weight"));
  assert_false(plm_peft_is_of_head("classifier.out_proj.lora_B.weight"));
}

static struct plm_model_folder base_of(enum plm_architecture architecture)
{
  struct plm_model_folder base = {.directory = "/base", .model = model_case_small(architecture)};
  base.model.hidden_size = 64;
  return base;
}

static void finds(struct plm_model_folder *base, const char *task, const struct stored *tensors,
                  size_t count, struct plm_peft_head *head)
{
  char config[200];
  snprintf(config, sizeof config, "{" LORA "%s%s%s}", task != NULL ? ",\"task_type\":\"" : "",
           task != NULL ? task : "", task != NULL ? "\"" : "");
  write_adapter(config, tensors, count);
  failure = (struct plm_error){0};
  if (plm_peft_head_find(folder, base, head, &failure) != PLM_OK)
    fail_msg("%s (%s)", failure.what, failure.where);
}

static const float wide[64 * 64];

/* Writes an adapter whose head has a hidden layer of 64. */
static void write_layered(const char *more)
{
  const struct plm_tensor_info infos[] = {{.name = BASE "classifier.dense.weight",
                                           .dtype = PLM_F32,
                                           .rank = 2,
                                           .shape = {64, 64},
                                           .bytes = sizeof wide,
                                           .data = wide},
                                          {.name = BASE "classifier.out_proj.weight",
                                           .dtype = PLM_F32,
                                           .rank = 2,
                                           .shape = {3, 64},
                                           .bytes = 4 * 3 * 64,
                                           .data = wide}};
  char config[200];
  snprintf(config, sizeof config, "{" LORA "%s}", more);
  write_text("adapter_config.json", config);
  must_work(
      plm_safetensors_write(in_folder("adapter_model.safetensors"), infos, 2, NULL, 0, &failure),
      &failure);
}

static void a_head_is_found_by_its_tensors(void **state)
{
  (void)state;
  struct plm_peft_head head;
  struct plm_model_folder base = base_of(PLM_ESM2);
  const struct stored none[] = {a_of_dense, b_of_dense};
  finds(&base, "SEQ_CLS", none, 2, &head);
  assert_false(head.found);
  assert_int_equal(base.model.head.kind, PLM_PREDICTS_TOKENS);
  /* residues: three classes, as transformers assumes */
  const struct stored residues[] = {
      a_of_dense, {BASE "classifier.weight", 3, 2, {0}}, {BASE "classifier.bias", 3, 0, {0}}};
  finds(&base, "TOKEN_CLS", residues, 3, &head);
  assert_true(head.found);
  assert_false(head.described);
  assert_string_equal(head.names, "");
  assert_int_equal(base.model.head.kind, PLM_PREDICTS_RESIDUES);
  assert_int_equal(base.model.head.outputs, 3);
  assert_int_equal(base.model.head.loss, PLM_LOSS_CLASS);
  /* the base has the same head, whose names count */
  finds(&base, "TOKEN_CLS", residues, 3, &head);
  assert_string_equal(head.names, "/base");
  /* sequences: score.weight of another class */
  const struct stored score[] = {a_of_dense, {BASE "score.weight", 1, 6, {0}}};
  base = base_of(PLM_TRANSFORMER);
  finds(&base, "SEQ_CLS", score, 2, &head);
  assert_string_equal(head.names, "");
  assert_int_equal(base.model.head.kind, PLM_PREDICTS_SEQUENCES);
  assert_int_equal(base.model.head.outputs, 1);
  assert_int_equal(base.model.head.loss, PLM_LOSS_SQUARES);
  assert_int_equal(base.model.head.hidden, 0);
  base.model.head.outputs = 2; /* of another size: its names do not count */
  finds(&base, "SEQ_CLS", score, 2, &head);
  assert_string_equal(head.names, "");
  assert_int_equal(base.model.head.outputs, 1);
}

/* A hidden layer says that the head is one of sequences, whatever the task. */
static void a_layered_head_needs_no_task(void **state)
{
  (void)state;
  struct plm_peft_head head;
  for (int i = 0; i < 2; i++) {
    struct plm_model_folder base = base_of(i == 0 ? PLM_ESM2 : PLM_TRANSFORMER);
    write_layered("");
    if (plm_peft_head_find(folder, &base, &head, &failure) != PLM_OK)
      fail_msg("%s (%s)", failure.what, failure.where);
    assert_true(head.found);
    assert_int_equal(base.model.head.kind, PLM_PREDICTS_SEQUENCES);
    assert_int_equal(base.model.head.outputs, 3);
    assert_int_equal(base.model.head.hidden, 64);
    assert_int_equal(base.model.head.pooling, i == 0 ? PLM_HEAD_CLS : PLM_HEAD_MEAN);
  }
}

static void head_refused(struct plm_model_folder *base, plm_status status, const char *file,
                         const char *what, const char *hint)
{
  struct plm_peft_head head;
  failure = (struct plm_error){0};
  assert_int_equal(plm_peft_head_find(folder, base, &head, &failure), status);
  assert_string_equal(failure.what, what);
  assert_string_equal(failure.where, in_folder(file));
  assert_string_equal(failure.hint, hint);
}

static void a_head_that_nobody_describes_is_refused(void **state)
{
  (void)state;
  struct plm_model_folder base = base_of(PLM_ESM2);
  const struct stored tensors[] = {
      a_of_dense, b_of_dense, head_weight, head_bias, {BASE "classifier.lora_A.weight", 1, 1, {0}}};
  static const char *const tasks[] = {"", ",\"task_type\":\"FEATURE_EXTRACTION\""};
  for (size_t i = 0; i < 2; i++) {
    char config[200];
    snprintf(config, sizeof config, "{" LORA "%s}", tasks[i]);
    write_adapter(config, tensors, 4);
    head_refused(&base, PLM_CONFIG, "adapter_config.json",
                 "the adapter has a head for labels, but \"task_type\" is neither SEQ_CLS nor "
                 "TOKEN_CLS",
                 "set it, or put the config.json of the model that the adapter was trained with "
                 "into its folder");
  }
  write_adapter("{", tensors, 4);
  struct plm_peft_head head;
  assert_int_equal(plm_peft_head_find(folder, &base, &head, &failure), PLM_FORMAT);
  assert_string_equal(failure.where, in_folder("adapter_config.json"));
  write_adapter("{" LORA ",\"task_type\":\"TOKEN_CLS\"}", tensors, 5);
  head_refused(&base, PLM_UNSUPPORTED, "adapter_model.safetensors",
               "the adapter has a head of its own (modules_to_save) and low-rank matrices "
               "(target_modules) for products of it",
               "merge it in Python (merge_and_unload), and use the folder that save_pretrained "
               "writes then");
}

static void config_json_describes_a_head(void **state)
{
  (void)state;
  static const char wrong[] = "the head in config.json is not the one in "
                              "adapter_model.safetensors, which has 3 outputs",
                    hint[] = "remove config.json, or replace it by that of the model that the "
                             "adapter was trained with";
  struct plm_peft_head head;
  struct plm_model_folder base = base_of(PLM_ESM2);
  write_layered("");
  write_text("config.json",
             "{\"architectures\":[\"EsmForSequenceClassification\"],\"problem_type\":"
             "\"multi_label_classification\",\"num_labels\":3}");
  if (plm_peft_head_find(folder, &base, &head, &failure) != PLM_OK) fail_msg("%s", failure.what);
  assert_true(head.found && head.described);
  assert_string_equal(head.names, folder);
  assert_int_equal(base.model.head.loss, PLM_LOSS_CLASSES);
  /* of the base, as Python saves it: the layers say which head it is */
  write_text("config.json", "{\"architectures\":[\"EsmForMaskedLM\"],\"num_labels\":3}");
  if (plm_peft_head_find(folder, &base, &head, &failure) != PLM_OK) fail_msg("%s", failure.what);
  assert_int_equal(base.model.head.kind, PLM_PREDICTS_SEQUENCES);
  assert_int_equal(base.model.head.loss, PLM_LOSS_CLASS);
  write_text("config.json",
             "{\"architectures\":[\"EsmForSequenceClassification\"],\"num_labels\":4}");
  head_refused(&base, PLM_CONFIG, "config.json", wrong, hint);
  write_text("config.json", "{\"architectures\":[\"EsmForTokenClassification\"],\"num_labels\":3}");
  head_refused(&base, PLM_CONFIG, "config.json", wrong, hint);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(names_of_a_head, begin),
      cmocka_unit_test_setup(a_head_is_found_by_its_tensors, begin),
      cmocka_unit_test_setup(a_layered_head_needs_no_task, begin),
      cmocka_unit_test_setup(a_head_that_nobody_describes_is_refused, begin),
      cmocka_unit_test_setup(config_json_describes_a_head, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
