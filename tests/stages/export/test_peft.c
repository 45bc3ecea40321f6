/* Adapters in PEFT's format: what is written, what is folded into which weights, and each reason to
 * refuse one. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/text/text.h"
#include "stages/export/export_merge.h"
#include "stages/export/peft_adapter.h"
#include "tests/stages/export/peft_files.h"
#include "tests/support/cases/model_case.h"
#include "tests/support/expected/expected_file.h"

/* ---- folding ---- */

static void a_product_is_added_to_its_matrix(void **state)
{
  (void)state;
  float w[8] = {100, 200, 300, 400, 500, 600, 7, 8};
  plm_merge_fold(w, a_of_dense.values, b_of_dense.values, &table[DENSE_WEIGHT], 2, 0.5);
  /* rows of B A: (21, 42, 63) and (-10, -20, -30) */
  const float expected[8] = {110.5F, 221, 331.5F, 395, 490, 585, 7, 8};
  assert_memory_equal(w, expected, sizeof w);
  static const char name[] = "esm.encoder.layer.0.output.dense.lora_A.weight";
  const size_t stem = strlen(name) - strlen(".lora_A.weight");
  assert_ptr_equal(plm_merge_base(table, PARAMETERS, name, stem), &table[DENSE_WEIGHT]);
  assert_null(plm_merge_base(table, PARAMETERS, name, stem - 1));
  assert_null(plm_merge_base(table, DENSE_WEIGHT, name, stem));
}

/* The adapters leave the table, and what remains keeps its place in the arena. */
static void own_adapters_are_folded(void **state)
{
  (void)state;
  const struct plm_lora_config lora = {.rank = 2, .alpha = 1};
  struct plm_parameter all[7] = {table[EMBEDDING], table[DENSE_WEIGHT]};
  for (int i = 2; i < 4; i++) {
    all[i] = (struct plm_parameter){.adapter = 1, .offset = i == 2 ? 52 : 58};
    snprintf(all[i].name, sizeof all[i].name, "esm.encoder.layer.0.output.dense.lora_%c.weight",
             i == 2 ? 'A' : 'B');
  }
  all[4] = table[DENSE_BIAS];
  all[5] = table[HEAD_WEIGHT];
  all[6] = table[HEAD_BIAS];
  float values[ELEMENTS] = {0};
  bool changed[7];
  memset(changed, 1, sizeof changed);
  memcpy(values + 52, a_of_dense.values, sizeof a_of_dense.values);
  memcpy(values + 58, b_of_dense.values, 4 * sizeof(float));
  assert_int_equal(plm_merge_adapters(&lora, all, 7, values, changed), PARAMETERS);
  for (int i = 0; i < PARAMETERS; i++) {
    assert_string_equal(all[i].name, table[i].name);
    assert_int_equal(all[i].offset, table[i].offset);
    assert_int_equal(changed[i], i == DENSE_WEIGHT);
  }
  const float expected[6] = {10.5F, 21, 31.5F, -5, -10, -15};
  assert_memory_equal(values + 16, expected, sizeof expected);
  for (int i = 0; i < 16; i++) assert_true(values[i] == 0);
}

static void an_adapter_of_peft_is_folded(void **state)
{
  (void)state;
  float values[ELEMENTS] = {0};
  bool changed[PARAMETERS] = {false};
  const struct stored tensors[] = {a_of_dense, b_of_dense, head_weight, head_bias};
  write_adapter("{" LORA ",\"bias\":\"none\",\"use_dora\":false,\"rank_pattern\":{},"
                "\"layer_replication\":null,\"target_parameters\":[],\"init_lora_weights\":true}",
                tensors, 4);
  if (plm_peft_fold(folder, table, PARAMETERS, true, values, changed, &failure) != PLM_OK)
    fail_msg("%s", failure.what);
  const float dense[6] = {10.5F, 21, 31.5F, -5, -10, -15};
  assert_memory_equal(values + 16, dense, sizeof dense);
  assert_memory_equal(values + 40, head_weight.values, 4 * sizeof(float));
  assert_memory_equal(values + 48, head_bias.values, 2 * sizeof(float));
  for (int i = 0; i < PARAMETERS; i++)
    assert_int_equal(changed[i], i == DENSE_WEIGHT || i >= HEAD_WEIGHT);
}

static void refused(const char *config, const struct stored *tensors, size_t count, bool head,
                    plm_status status, const char *file, const char *what, const char *hint)
{
  float values[ELEMENTS] = {0};
  bool changed[PARAMETERS] = {false};
  write_adapter(config, tensors, count);
  failure = (struct plm_error){0};
  const plm_status got = plm_peft_fold(folder, table, PARAMETERS, head, values, changed, &failure);
  assert_string_equal(failure.what, what);
  assert_int_equal(got, status);
  assert_string_equal(failure.where, in_folder(file));
  assert_string_equal(failure.hint, hint);
}

static void other_kinds_of_adapters_are_refused(void **state)
{
  (void)state;
  static const char *const options[] = {
      "use_dora",      "use_rslora",        "use_qalora",        "use_bdlora",
      "bias",          "lora_bias",         "fan_in_fan_out",    "rank_pattern",
      "alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices",
      "arrow_config",  "kasa_config",       "monteclora_config", "alora_invocation_tokens"};
  static const char *const given[] = {"true", "\"all\"", "[1]", "{\"a\":1}", "1"};
  static const char file
      [] = "adapter_config.json",
  python[] =
      "merge it in Python (merge_and_unload), and use the folder that save_pretrained writes then";
  const struct stored tensors[] = {a_of_dense, b_of_dense};
  char config[200], what[200];
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    snprintf(config, sizeof config, "{" LORA ",\"%s\":%s}", options[i], given[i % 5]);
    snprintf(what, sizeof what, "adapters with \"%s\" cannot be used", options[i]);
    refused(config, tensors, 2, false, PLM_UNSUPPORTED, file, what, python);
  }
  static const struct {
    const char *config, *what, *hint;
    plm_status status;
  } rows[] = {
      {"{" LORA ",\"init_lora_weights\":\"pissa\"}",
       "\"init_lora_weights\" is \"pissa\", which may have changed the base's weights",
       "merge it in Python (merge_and_unload)", PLM_UNSUPPORTED},
      {"{\"peft_type\":\"IA3\",\"r\":2,\"lora_alpha\":1}",
       "\"peft_type\" is \"IA3\"; only LORA can be used", "", PLM_UNSUPPORTED},
      {"{}", "\"peft_type\" is \"\"; only LORA can be used", "", PLM_UNSUPPORTED},
      {"{\"peft_type\":\"LORA\",\"lora_alpha\":1}", "\"r\" is not a whole number from 1 on", "",
       PLM_FORMAT},
      {"{\"peft_type\":\"LORA\",\"r\":0.5,\"lora_alpha\":1}",
       "\"r\" is not a whole number from 1 on", "", PLM_FORMAT},
      {"{\"peft_type\":\"LORA\",\"r\":1.5,\"lora_alpha\":1}",
       "\"r\" is not a whole number from 1 on", "", PLM_FORMAT},
      {"{\"peft_type\":\"LORA\",\"r\":65537,\"lora_alpha\":1}",
       "\"r\" is not a whole number from 1 on", "", PLM_FORMAT},
      {"{\"peft_type\":\"LORA\",\"r\":2}", "\"lora_alpha\" is not a number", "", PLM_FORMAT},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    refused(rows[i].config, tensors, 2, false, rows[i].status, file, rows[i].what, rows[i].hint);
  static const char *const neutral[] = {"gaussian", "eva", "orthogonal"};
  for (size_t i = 0; i < 3; i++) {
    float values[ELEMENTS] = {0};
    bool changed[PARAMETERS] = {false};
    snprintf(config, sizeof config, "{" LORA ",\"init_lora_weights\":\"%s\"}", neutral[i]);
    write_adapter(config, tensors, 2);
    assert_int_equal(plm_peft_fold(folder, table, PARAMETERS, false, values, changed, &failure),
                     PLM_OK);
  }
}

static void adapters_of_other_models_are_refused(void **state)
{
  (void)state;
  static const char file[] = "adapter_model.safetensors", config[] = "{" LORA "}",
                    other[] = "the adapter was trained for another model",
                    modules[] = "the adapter was trained for another model, or with other "
                                "modules_to_save than a head for labels";
  const struct stored good[2] = {a_of_dense, b_of_dense};
  struct stored t[4];
  const struct {
    const char *name, *what;
  } names[] = {
      {"model."
       "esm.encoder.layer.0.output.dense.lora_A.weight",
       "tensor model.esm.encoder.layer.0.output.dense.lora_A.weight is for no product of this "
       "model"},
      {BASE "esm.encoder.layer.1.output.dense.lora_A.weight",
       "tensor " BASE "esm.encoder.layer.1.output.dense.lora_A.weight is for no product of this "
       "model"},
      {BASE "esm.embeddings.word_embeddings.lora_A.weight",
       "tensor " BASE
       "esm.embeddings.word_embeddings.lora_A.weight is for no product of this model"},
      {DENSE ".lora_C.weight", "tensor " DENSE ".lora_C.weight is for no product of this model"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    memcpy(t, good, sizeof good);
    t[0].name = names[i].name;
    refused(config, t, 2, false, PLM_FORMAT, file, names[i].what, modules);
  }
  /* either matrix may have another shape, in each direction */
  for (int i = 0; i < 4; i++) {
    char what[200];
    memcpy(t, good, sizeof good);
    t[i / 2].rows += i % 2 == 0 ? 0 : (i < 2 ? -1ULL : 1ULL);
    if (i % 2 == 0) t[i / 2].cols = i < 2 ? 2 : 3;
    snprintf(what, sizeof what, "tensor %s has not the shape (2, %d)", good[i / 2].name,
             i < 2 ? 3 : 2);
    refused(config, t, 2, false, PLM_FORMAT, file, what, other);
  }
  memcpy(t, good, sizeof good);
  t[0].cols = 0;
  refused(config, t, 2, false, PLM_FORMAT, file,
          "tensor " DENSE ".lora_A.weight has not the shape (2, 3)", other);
  memcpy(t, good, sizeof good);
  t[1].values[3] = 1.0F / 0.0F;
  refused(config, t, 2, false, PLM_FORMAT, file,
          "tensor " DENSE ".lora_B.weight holds NaN or infinity", "");
  refused(config, good, 1, false, PLM_FORMAT, file, "tensor " DENSE ".lora_B.weight is missing",
          "");
  refused(config, good + 1, 1, false, PLM_FORMAT, file, "it has 0 tensors lora_A and 1 lora_B", "");
  refused(config, good, 0, false, PLM_FORMAT, file, "it has 0 tensors lora_A and 0 lora_B", "");
  memcpy(t, good, sizeof good);
  t[2] = b_of_dense;
  t[2].name = BASE "x.lora_B.weight";
  refused(config, t, 3, false, PLM_FORMAT, file, "it has 1 tensors lora_A and 2 lora_B", "");
}

static void heads_that_do_not_fit_are_refused(void **state)
{
  (void)state;
  static const char file[] = "adapter_model.safetensors", config[] = "{" LORA "}",
                    other[] = "the adapter was trained for another model",
                    modules[] = "the adapter was trained for another model, or with other "
                                "modules_to_save than a head for labels";
  struct stored t[4] = {a_of_dense, b_of_dense, head_weight, head_bias};
  refused(config, t, 4, false, PLM_FORMAT, file,
          "tensor " BASE "classifier.weight is for no product of this model", modules);
  refused(config, t, 3, true, PLM_FORMAT, file, "tensor " BASE "classifier.bias is missing", "");
  t[2].cols = 3;
  refused(config, t, 4, true, PLM_FORMAT, file,
          "tensor " BASE "classifier.weight has not the shape that the model's head has", other);
  t[2].cols = 0;
  refused(config, t, 4, true, PLM_FORMAT, file,
          "tensor " BASE "classifier.weight has not the shape that the model's head has", other);
  t[2] = head_weight;
  t[2].name = BASE "classifier.other";
  refused(config, t, 4, true, PLM_FORMAT, file,
          "tensor " BASE "classifier.other is for no product of this model", modules);
}

/* ---- writing ---- */

static struct plm_model_config adapted(enum plm_architecture architecture, enum plm_head_kind kind,
                                       uint32_t targets)
{
  struct plm_model_config config = model_case_small(architecture);
  config.lora =
      (struct plm_lora_config){.rank = 4, .alpha = 16, .dropout = 0.125, .targets = targets};
  config.head.kind = kind;
  return config;
}

static void the_configuration_names_the_products(void **state)
{
  (void)state;
  const struct plm_model_config configs[] = {
      adapted(PLM_ESM2, PLM_PREDICTS_TOKENS, 1u << PLM_LORA_Q | 1u << PLM_LORA_DOWN),
      adapted(PLM_ESM2, PLM_PREDICTS_RESIDUES, 0x0f),
      adapted(PLM_TRANSFORMER, PLM_PREDICTS_SEQUENCES, 0x6f)};
  struct plm_text all = {0};
  for (size_t i = 0; i < 3; i++) {
    char *text;
    size_t size;
    assert_int_equal(plm_peft_write_config(folder, &configs[i], table, PARAMETERS, &failure),
                     PLM_OK);
    assert_int_equal(
        plm_file_read(in_folder("adapter_config.json"), 1 << 16, &text, &size, &failure), PLM_OK);
    plm_text_puts(&all, text);
    plm_text_puts(&all, "\n");
    free(text);
  }
  expected_file("stages/export/peft/configs", all.data);
  plm_text_deinit(&all);
}

/* Adapters are written, and a head only if it predicts labels; as they are or as bfloat16. */
static void adapters_and_heads_are_written(void **state)
{
  (void)state;
  struct plm_parameter all[PARAMETERS];
  float values[ELEMENTS];
  memcpy(all, table, sizeof all);
  all[DENSE_WEIGHT].adapter = 3;
  for (int i = 0; i < ELEMENTS; i++) values[i] = (float)i + 0.001F;
  for (int i = 0; i < 4; i++) {
    const bool labels = i % 2 == 1, rounded = i / 2 == 1;
    const struct plm_model_config config =
        adapted(PLM_ESM2, labels ? PLM_PREDICTS_RESIDUES : PLM_PREDICTS_TOKENS, 1);
    const struct plm_peft_weights weights = {&config, all, PARAMETERS, ELEMENTS, values, rounded};
    const struct plm_metadata_entry format = {"format", "pt"};
    struct plm_safetensors *file;
    must_work(plm_peft_write_weights(in_folder("w"), &weights, &format, 1, &failure), &failure);
    must_work(plm_safetensors_open(in_folder("w"), &file, &failure), &failure);
    assert_int_equal(plm_safetensors_count(file), labels ? 3 : 1);
    assert_string_equal(plm_safetensors_metadata(file, "format"), "pt");
    const struct plm_tensor_info *dense = plm_safetensors_find(file, DENSE ".weight");
    assert_non_null(dense);
    assert_int_equal(dense->dtype, rounded ? PLM_BF16 : PLM_F32);
    assert_true(dense->rank == 2 && dense->shape[0] == 2 && dense->shape[1] == 3);
    if (!rounded) assert_memory_equal(dense->data, values + 16, 6 * sizeof(float));
    for (int k = 0; k < 6 && rounded; k++) {
      const float whole = (float)(16 + k); /* .001 is beyond bfloat16 */
      uint32_t bits;
      memcpy(&bits, &whole, sizeof bits);
      assert_int_equal(((const uint16_t *)dense->data)[k], bits >> 16);
    }
    const struct plm_tensor_info *bias = plm_safetensors_find(file, BASE "classifier.bias");
    assert_int_equal(bias != NULL, labels);
    if (labels) assert_true(bias->rank == 1 && bias->shape[0] == 2);
    if (labels && !rounded) assert_memory_equal(bias->data, values + 48, 2 * sizeof(float));
    plm_safetensors_close(file);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_product_is_added_to_its_matrix, begin),
      cmocka_unit_test_setup(own_adapters_are_folded, begin),
      cmocka_unit_test_setup(an_adapter_of_peft_is_folded, begin),
      cmocka_unit_test_setup(other_kinds_of_adapters_are_refused, begin),
      cmocka_unit_test_setup(adapters_of_other_models_are_refused, begin),
      cmocka_unit_test_setup(heads_that_do_not_fit_are_refused, begin),
      cmocka_unit_test_setup(the_configuration_names_the_products, begin),
      cmocka_unit_test_setup(adapters_and_heads_are_written, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
