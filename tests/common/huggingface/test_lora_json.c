/* Adapters in config.json, and which folder is a start for a model with adapters or with another
 * head. */
#include "common/huggingface/lora_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/text/text.h"
#include "common/huggingface/huggingface.h"
#include "common/huggingface/model_folder.h"
#include "common/model/model.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static struct plm_model_config adapted(enum plm_architecture architecture, uint32_t targets)
{
  struct plm_model_config config = case_config(architecture, 2, 32);
  config.lora =
      (struct plm_lora_config){.rank = 4, .alpha = 8.5, .dropout = 0.25, .targets = targets};
  return config;
}

static void adapters_go_round(void **state)
{
  (void)state;
  static const struct {
    enum plm_architecture architecture;
    uint32_t targets;
    const char *text;
  } rows[] = {
      {PLM_TRANSFORMER, 1u << PLM_LORA_Q | 1u << PLM_LORA_DOWN,
       "{\"lora\":{\"rank\":4,\"alpha\":8.5,\"targets\":[\"q\",\"down\"],\"dropout\":0.25}}"},
      {PLM_UNET, 1u << PLM_LORA_UP,
       "{\"lora\":{\"rank\":4,\"alpha\":8.5,\"targets\":[\"up\"],\"dropout\":0.25}}"},
      {PLM_ESMC, 0x7f,
       "{\"plm_pipeline\":{\"max_length\":32,\"objective\":\"mlm\",\"lora\":{\"rank\":4,\"alpha\":"
       "8.5,"
       "\"targets\":[\"q\",\"k\",\"v\",\"o\",\"gate\",\"up\",\"down\"],\"dropout\":0.25}}}"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_model_config config = adapted(rows[i].architecture, rows[i].targets);
    struct plm_model_config again = config;
    struct plm_error error = {0};
    cJSON *json = cJSON_CreateObject();
    plm_lora_config_print(&config, json);
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, rows[i].text);
    again.lora = (struct plm_lora_config){.rank = 1};
    if (plm_lora_config_parse(json, &again, &error) != PLM_OK) fail_msg("%s", error.what);
    assert_int_equal(again.lora.rank, 4);
    assert_int_equal(again.lora.targets, rows[i].targets);
    assert_true(again.lora.alpha == 8.5 && again.lora.dropout == 0.25);
    cJSON_free(text);
    cJSON_Delete(json);
    text = plm_huggingface_config_print(&config, 32, PLM_OBJECTIVE_MLM); /* the whole file */
    again.lora = (struct plm_lora_config){.rank = 1};
    must_work(plm_huggingface_config_parse(text, strlen(text), &again, NULL, NULL, &error), &error);
    assert_int_equal(again.lora.rank, 4);
    assert_int_equal(again.lora.targets, rows[i].targets);
    free(text);
  }
  const struct plm_model_config none = case_config(PLM_TRANSFORMER, 2, 32);
  cJSON *json = cJSON_CreateObject();
  plm_lora_config_print(&none, json);
  assert_null(json->child);
  cJSON_Delete(json);
}

static void each_key_is_checked(void **state)
{
  (void)state;
  static const struct {
    const char *text, *where, *what;
    plm_status status;
  } rows[] = {
      {"{}", NULL, NULL, PLM_OK},
      {"{\"lora\":null}", NULL, NULL, PLM_OK},
      {"{\"lora\":{\"rank\":1,\"alpha\":1,\"targets\":[\"o\"]}}", NULL, NULL, PLM_OK},
      {"{\"lora\":{\"rank\":1024,\"alpha\":1,\"targets\":[\"o\"]}}", NULL, NULL, PLM_OK},
      {"{\"lora\":{\"rank\":1025,\"alpha\":1,\"targets\":[\"o\"]}}", "lora.rank",
       "\"lora.rank\" is not a whole number from 1 to 1024", PLM_FORMAT},
      {"{\"lora\":{\"rank\":0,\"alpha\":1,\"targets\":[\"o\"]}}", "lora.rank",
       "\"lora.rank\" is not a whole number from 1 to 1024", PLM_FORMAT},
      {"{\"lora\":{\"rank\":1.5,\"alpha\":1,\"targets\":[\"o\"]}}", "lora.rank",
       "\"lora.rank\" is not a whole number from 1 to 1024", PLM_FORMAT},
      {"{\"lora\":7}", "lora.rank", "\"lora.rank\" is not a whole number from 1 to 1024",
       PLM_FORMAT},
      {"{\"lora\":{\"rank\":1,\"alpha\":1,\"targets\":[\"o\",\"x\"]}}", "lora.targets",
       "\"lora.targets\" is not a list of q, k, v, o, gate, up or down", PLM_FORMAT},
      {"{\"lora\":{\"rank\":1,\"alpha\":1,\"targets\":[1]}}", "lora.targets",
       "\"lora.targets\" is not a list of q, k, v, o, gate, up or down", PLM_FORMAT},
      {"{\"lora\":{\"rank\":1,\"targets\":[\"o\"]}}", "lora.alpha", "nan is not a number above 0",
       PLM_CONFIG},
      {"{\"lora\":{\"rank\":1,\"alpha\":1,\"targets\":[\"gate\"]}}", "lora.targets",
       "`gate` is a product of a SwiGLU MLP only, such as that of esmc; leave it out", PLM_CONFIG},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_model_config config = adapted(PLM_TRANSFORMER, 1);
    struct plm_error error = {0};
    cJSON *json = cJSON_Parse(rows[i].text);
    assert_int_equal(plm_lora_config_parse(json, &config, &error), rows[i].status);
    cJSON_Delete(json);
    if (rows[i].status == PLM_OK) {
      assert_int_equal(config.lora.targets, strstr(rows[i].text, "rank") != NULL ? 8 : 0);
      continue;
    }
    assert_int_equal(config.lora.rank, 0);
    assert_string_equal(error.where, rows[i].where);
    assert_string_equal(error.what, rows[i].what);
  }
}

/* ---- folders ---- */

static void weights_are_chosen(void **state)
{
  (void)state;
  struct plm_model_folder folder = {.directory = "/d"};
  const char *file = NULL;
  struct plm_error error = {0};
  static const char *const words[] = {NULL, "model", "ema"};
  static const char *const files[2][3] = {
      {"model.safetensors", "model.safetensors", NULL},
      {"ema.safetensors", "model.safetensors", "ema.safetensors"}};
  for (int averaged = 0; averaged < 2; averaged++)
    for (int i = 0; i < 3; i++) {
      folder.averaged = averaged != 0;
      const plm_status status = plm_model_folder_choose(&folder, words[i], &file, &error);
      assert_int_equal(status, files[averaged][i] != NULL ? PLM_OK : PLM_NOT_FOUND);
      if (status == PLM_OK) assert_string_equal(file, files[averaged][i]);
    }
  assert_string_equal(error.what, "/d has no EMA weights");
  assert_string_equal(error.hint, "omit --weights, or use --weights model; a run keeps EMA weights "
                                  "if trainer.ema is above 0");
  assert_int_equal(plm_model_folder_choose(&folder, "best", &file, &error), PLM_USAGE);
  assert_string_equal(error.what, "--weights must be model or ema, not \"best\"");
}

static void new_parts_are_named(void **state)
{
  (void)state;
  struct plm_model_config model = case_config(PLM_TRANSFORMER, 2, 32);
  struct plm_model_folder folder = {.model = model};
  struct plm_new_parts parts = plm_model_folder_new_parts(&folder, &model);
  assert_true(!parts.head && !parts.adapters);
  model.lora.rank = 2;
  assert_true(plm_model_folder_new_parts(&folder, &model).adapters);
  folder.model.lora.rank = 2;
  assert_false(plm_model_folder_new_parts(&folder, &model).adapters);
  model.head = folder.model.head =
      (struct plm_head_config){.kind = PLM_PREDICTS_SEQUENCES, .outputs = 2, .hidden = 3};
  assert_false(plm_model_folder_new_parts(&folder, &model).head);
  model.head.outputs = 3;
  assert_true(plm_model_folder_new_parts(&folder, &model).head);
  model.head.outputs = 2;
  model.head.hidden = 0;
  assert_true(plm_model_folder_new_parts(&folder, &model).head);
  model.head = (struct plm_head_config){.kind = PLM_PREDICTS_RESIDUES, .outputs = 2, .hidden = 3};
  assert_true(plm_model_folder_new_parts(&folder, &model).head);
  model.head.kind = PLM_PREDICTS_TOKENS; /* the language model's is in every folder */
  assert_false(plm_model_folder_new_parts(&folder, &model).head);
}

/* A folder with adapters is a start for the same ones only; another alpha is noted. */
static void adapters_must_be_those_of_the_folder(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_text notes = {0};
  const struct plm_model_config has = adapted(PLM_TRANSFORMER, 3);
  struct plm_model_folder folder = {.directory = "/d", .model = has};
  struct plm_model_config wanted = has;
  assert_int_equal(plm_model_folder_fits(&folder, &wanted, &notes, &error), PLM_OK);
  assert_int_equal(notes.length, 0);
  wanted.lora.alpha = 2;
  assert_int_equal(plm_model_folder_fits(&folder, &wanted, &notes, &error), PLM_OK);
  assert_string_equal(notes.data, "lora.alpha was 8.5, is 2\n");
  assert_int_equal(plm_model_folder_fits(&folder, &wanted, NULL, &error), PLM_OK);
  static const char *const asks[] = {"adapters of another rank or with other targets", "none"};
  for (int i = 0; i < 2; i++) {
    char what[200];
    wanted.lora.rank = i == 0 ? 5 : 0;
    assert_int_equal(plm_model_folder_fits(&folder, &wanted, &notes, &error), PLM_CONFIG);
    snprintf(what, sizeof what, "the weights have adapters of rank 4, and trainer.lora asks for %s",
             asks[i]);
    assert_string_equal(error.what, what);
    assert_string_equal(error.where, "/d");
    assert_string_equal(error.hint,
                        "give trainer.lora the values of `lora` in the folder's config.json, or "
                        "fold the adapters into the weights first: plm-pipeline export --merge");
  }
  plm_text_deinit(&notes);
}

/* The file has to have what is not new. */
static void a_start_has_all_that_is_not_new(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_model_config model = case_config(PLM_TRANSFORMER, 2, 32);
  struct plm_model_folder folder = {.model = model};
  struct plm_parameter *table;
  size_t count, elements;
  scratch_run(folder.directory);
  must_work(plm_model_parameters(&model, &table, &count, &elements, &error), &error);
  float *values = must(calloc(elements, sizeof *values));
  case_weights(table, count, 1, values);
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder.directory, "model.safetensors", NULL), PLM_OK);
  must_work(plm_parameters_write(path, table, count, values, &error), &error);
  free(values);
  free(table);
  assert_int_equal(plm_model_folder_can_start(&folder, &model, NULL, &error), PLM_OK);
  model.lora = adapted(PLM_TRANSFORMER, 1).lora; /* new adapters are drawn */
  assert_int_equal(plm_model_folder_can_start(&folder, &model, NULL, &error), PLM_OK);
  folder.model.lora = model.lora; /* the folder is said to have them, but its file does not */
  assert_int_equal(plm_model_folder_can_start(&folder, &model, NULL, &error), PLM_FORMAT);
  folder.model.lora = model.lora = (struct plm_lora_config){0};
  model.head =
      (struct plm_head_config){.kind = PLM_PREDICTS_RESIDUES, .outputs = 2, .loss = PLM_LOSS_CLASS};
  assert_int_equal(plm_model_folder_can_start(&folder, &model, NULL, &error),
                   PLM_OK); /* a new head */
  folder.model.head = model.head;
  assert_int_equal(plm_model_folder_can_start(&folder, &model, NULL, &error), PLM_FORMAT);
  assert_int_equal(unlink(path), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adapters_go_round),
      cmocka_unit_test(each_key_is_checked),
      cmocka_unit_test(weights_are_chosen),
      cmocka_unit_test(new_parts_are_named),
      cmocka_unit_test(adapters_must_be_those_of_the_folder),
      cmocka_unit_test(a_start_has_all_that_is_not_new),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
