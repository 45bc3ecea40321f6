/* Every row of the table of settings below `model.` reaches whatever describes a model:
 * config.json, the model card, modeling_plm.py and the memory estimate. CONTRIBUTING.md, "An option
 * of the model", lists these places. What a row changes in the model itself is compared with
 * PyTorch by tests/common/huggingface/test_modeling_settings.py. */
#include "tests/support/harness/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/settings.h"
#include "common/huggingface/huggingface.h"
#include "stages/export/model_card.h"
#include "trainer/memory_estimate.h"

/* For each row: another value than in `base`, with an architecture that uses it, and why a place
 * need not say it. A reason is checked too: the row must then change nothing there. */
static const struct row {
  const char *key, *value, *architecture;
  const char *card, *python, *memory; /* NULL: it is said there */
} table[] = {
    {"architecture", "unet", "transformer", NULL, NULL, NULL},
    {"hidden_size", "192", "transformer", NULL, NULL, NULL},
    {"num_attention_heads", "4", "transformer", NULL, NULL, NULL},
    {"num_hidden_layers", "8", "unet", NULL, NULL, NULL},
    {"num_unet_layers", "4", "patch_unet", NULL, NULL, NULL},
    {"num_extra_layers", "2", "patch_unet", NULL, NULL, NULL},
    {"expansion_ratio", "4", "transformer", NULL, NULL, NULL},
    {"soft_logit_cap", "8", "transformer", NULL, NULL, "a function of the logits, in place"},
    {"tie_embeddings", "true", "transformer", NULL, NULL, NULL},
    {"token_dropout", "true", "transformer", NULL, NULL, "a row of a table is read as zero"},
    {"attention.pattern", "[document]", "transformer", NULL, NULL, NULL},
    {"attention.window.start", "8", "transformer",
     "the card gives the window in force, which a checkpoint keeps beside its model",
     "only the schedule of training uses it", "masks are intervals of any width"},
    {"attention.window.end", "8", "transformer",
     "the card gives the window in force, which a checkpoint keeps beside its model", NULL,
     "masks are intervals of any width"},
    {"attention.window.steps", "9", "transformer",
     "the card gives the window in force, which a checkpoint keeps beside its model",
     "only the schedule of training uses it", "masks are intervals of any width"},
    {"attention.block", "8", "transformer", NULL, NULL, "masks are intervals of any width"},
};
enum { ROWS = sizeof table / sizeof *table };

/* A row that gives values to other rows and is no part of the model itself: a model that it made
 * and one whose values are written out must be described alike. */
static const char giver[] = "model.preset";

/* Rows of published weights, whose config.json is that of transformers and whose model is no
 * modeling_plm.py. */
static const char *const published[] = {"model.intermediate_size", "model.layer_norm_eps",
                                        "model.emb_layer_norm_before", "model.vocab_size"};

static bool is_of_published(const char *key)
{
  bool found = false;
  for (size_t i = 0; i < sizeof published / sizeof *published; i++)
    found = found || strcmp(published[i], key) == 0;
  return found;
}

/* What the four places say of a model. */
struct places {
  struct plm_model_config model;
  cJSON *json;
  struct plm_text card;
  struct plm_memory_estimate memory;
};

static void memory_size(struct plm_ops *ops, uint64_t *free_now, uint64_t *total)
{
  (void)ops;
  *free_now = *total = UINT64_MAX;
}

static size_t scratch(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                      size_t count)
{
  (void)ops;
  (void)matrices;
  (void)count;
  return 1000;
}

/* Appends "a: {b: {c: value}}" for a.b.c. */
static void put_nested(struct plm_text *text, const char *key, const char *value)
{
  size_t depth = 0;
  for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1, depth++)
    plm_text_printf(text, "%.*s: {", (int)(dot - key), key);
  plm_text_printf(text, "%s: %s", key, value);
  while (depth-- > 0) plm_text_puts(text, "}");
}

/* The value that a row has in `base`. */
static const char *base_value(const struct row *row)
{
  static const struct {
    const char *key, *value;
  } base[] = {{"hidden_size", "128"},
              {"num_attention_heads", "2"},
              {"num_hidden_layers", "4"},
              {"num_unet_layers", "6"},
              {"num_extra_layers", "1"},
              {"expansion_ratio", "2"},
              {"soft_logit_cap", "16"},
              {"tie_embeddings", "false"},
              {"token_dropout", "false"},
              {"attention.pattern", "[document, document+local, document+block]"},
              {"attention.window.start", "16"},
              {"attention.window.end", "16"},
              {"attention.window.steps", "0"},
              {"attention.block", "16"}};
  for (size_t i = 0; i < sizeof base / sizeof *base; i++)
    if (strcmp(base[i].key, row->key) == 0) return base[i].value;
  return NULL;
}

/* The configuration of `changed`'s architecture, with its other value or with that of the base. */
static void configure(const struct row *changed, bool other, struct plm_config *config)
{
  struct plm_text yaml = {0};
  plm_text_puts(&yaml, "data: {max_length: 64}\n"
                       "trainer: {batch_tokens: 256, micro_batch_tokens: 128}\nmodel:\n");
  struct plm_text attention = {0};
  for (size_t i = 0; i < ROWS; i++) {
    static const char section[] = "attention.";
    const bool inside = strncmp(table[i].key, section, strlen(section)) == 0;
    const char *key = table[i].key + (inside ? strlen(section) : 0);
    const char *value = other && &table[i] == changed ? changed->value : base_value(&table[i]);
    if (value == NULL) value = changed->architecture;
    struct plm_text *text = inside ? &attention : &yaml;
    if (strncmp(key, "window.", 7) == 0) continue;
    plm_text_puts(text, inside ? "    " : "  ");
    put_nested(text, key, value);
    plm_text_puts(text, "\n");
  }
  plm_text_printf(&yaml, "  attention:\n%s    window: {", attention.data);
  for (size_t i = 0; i < ROWS; i++) {
    const char *window = strstr(table[i].key, "window.");
    if (window != NULL)
      plm_text_printf(&yaml, "%s: %s, ", window + 7,
                      other && &table[i] == changed ? changed->value : base_value(&table[i]));
  }
  plm_text_puts(&yaml, "}\n");
  struct plm_error error = {0};
  if (plm_config_load_text(yaml.data, yaml.length, config, &error) != PLM_OK)
    fail_msg("%s: %s\n%s", changed->key, error.what, yaml.data);
  plm_text_deinit(&attention);
  plm_text_deinit(&yaml);
}

/* What the places say of the model of a configuration, which this releases. */
static void describe_config(struct plm_config *config, struct places *places)
{
  const struct plm_ops ops = {
      .name = "cuda", .act_bytes = 2, .memory_size = memory_size, .muon_scratch = scratch};
  *places = (struct places){0};
  places->model = config->model;
  char *text = plm_huggingface_config_print(&config->model, 16, PLM_OBJECTIVE_MLM);
  places->json = cJSON_Parse(text);
  free(text);
  struct plm_model_folder folder = {.model = config->model, .window = 16};
  const struct plm_card_facts facts = {
      .folder = &folder, .name = "x", .weights = "model", .dtype = "float32"};
  plm_model_card_print(&facts, &places->card);
  assert_int_equal(plm_memory_estimate(config, &ops, 1, 1, &places->memory, NULL), PLM_OK);
  plm_config_deinit(config);
}

static void describe(const struct row *changed, bool other, struct places *places)
{
  struct plm_config config;
  configure(changed, other, &config);
  describe_config(&config, places);
}

static void forget(struct places *places)
{
  cJSON_Delete(places->json);
  plm_text_deinit(&places->card);
}

static const cJSON *at(const cJSON *json, const char *key)
{
  char part[64];
  for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
    snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
    json = cJSON_GetObjectItemCaseSensitive(json, part);
  }
  return cJSON_GetObjectItemCaseSensitive(json, key);
}

static bool same_memory(const struct plm_memory_estimate *a, const struct plm_memory_estimate *b)
{
  bool same = a->parameters == b->parameters;
  for (size_t i = 0; i < a->count; i++) same = same && a->rows[i].bytes == b->rows[i].bytes;
  return same;
}

/* Neither list has a row that the other one lacks. */
static void every_row_of_the_settings_is_in_the_table(void **state)
{
  (void)state;
  size_t count, found = 0;
  const struct plm_setting *settings = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (strncmp(settings[i].key, "model.", 6) != 0 || strcmp(settings[i].key, giver) == 0 ||
        is_of_published(settings[i].key))
      continue;
    size_t row = 0;
    while (row < ROWS && strcmp(table[row].key, settings[i].key + 6) != 0) row++;
    if (row == ROWS) fail_msg("%s is not in the table of this test", settings[i].key);
    found++;
  }
  assert_int_equal(found, ROWS);
}

static void config_json_has_every_row(void **state)
{
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    struct places base, other;
    struct plm_model_config again;
    describe(&table[i], false, &base);
    describe(&table[i], true, &other);
    const cJSON *items[] = {at(base.json, table[i].key), at(other.json, table[i].key)};
    if (items[0] == NULL || items[1] == NULL || cJSON_Compare(items[0], items[1], true))
      fail_msg("config.json does not have model.%s", table[i].key);
    char *text = cJSON_Print(other.json);
    assert_int_equal(plm_huggingface_config_parse(text, strlen(text), &again, NULL, NULL, NULL),
                     PLM_OK);
    cJSON_free(text);
    struct plm_model_difference differences[PLM_MODEL_KEYS];
    assert_int_equal(plm_model_config_compare(&other.model, &again, differences), 0);
    assert_int_equal(plm_model_config_compare(&base.model, &again, differences), 1);
    assert_string_equal(differences[0].key, table[i].key);
    forget(&base);
    forget(&other);
  }
}

static void the_model_card_says_it(void **state)
{
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    struct places base, other;
    describe(&table[i], false, &base);
    describe(&table[i], true, &other);
    const bool same = strcmp(base.card.data, other.card.data) == 0;
    if (same != (table[i].card != NULL))
      fail_msg("model.%s %s the model card", table[i].key,
               same ? "does not reach" : "has a reason not to reach");
    forget(&base);
    forget(&other);
  }
}

static void the_memory_estimate_counts_it(void **state)
{
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    struct places base, other;
    describe(&table[i], false, &base);
    describe(&table[i], true, &other);
    const bool same = same_memory(&base.memory, &other.memory);
    if (same != (table[i].memory != NULL))
      fail_msg("model.%s %s the memory estimate", table[i].key,
               same ? "does not reach" : "has a reason not to reach");
    forget(&base);
    forget(&other);
  }
}

/* A parameter of PLMConfig, or a key of its attention. */
static void modeling_plm_reads_it(void **state)
{
  (void)state;
  for (size_t i = 0; i < ROWS; i++) {
    const char *dot = strrchr(table[i].key, '.');
    char text[80];
    snprintf(text, sizeof text, dot == NULL ? "\n        %s=" : "\"%s\"",
             dot == NULL ? table[i].key : dot + 1);
    const bool read = strstr(plm_huggingface_modeling, text) != NULL;
    if (read != (table[i].python == NULL))
      fail_msg("modeling_plm.py %s model.%s", read ? "has a reason not to read" : "does not read",
               table[i].key);
  }
}

/* The parameters are those of N blocks, 4 D^2 + 2 D F each (F = 4 D, but 2048 for 480), of the
 * embeddings and of the head: 33 D, and D^2 + 33 D + 33. */
static void a_preset_is_described_as_what_it_gives(void **state)
{
  static const struct {
    const char *name;
    uint32_t layers, width;
    uint64_t parameters;
  } cases[] = {{"8M", 6, 320, 7496353},
               {"35M", 12, 480, 34914273},
               {"150M", 30, 640, 147907873},
               {"650M", 33, 1280, 650529313}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char rest[] = "data: {max_length: 64}\n"
                               "trainer: {batch_tokens: 256, micro_batch_tokens: 128}\n";
    char texts[2][512];
    struct places places[2];
    snprintf(texts[0], sizeof texts[0], "%smodel: {preset: %s}\n", rest, cases[i].name);
    snprintf(texts[1], sizeof texts[1],
             "%smodel: {architecture: transformer, hidden_size: %u, num_attention_heads: 20, "
             "num_hidden_layers: %u, expansion_ratio: 4}\n",
             rest, cases[i].width, cases[i].layers);
    for (size_t j = 0; j < 2; j++) {
      struct plm_config config;
      assert_int_equal(plm_config_load_text(texts[j], strlen(texts[j]), &config, NULL), PLM_OK);
      describe_config(&config, &places[j]);
    }
    assert_true(cJSON_Compare(places[0].json, places[1].json, true));
    assert_null(cJSON_GetObjectItemCaseSensitive(places[0].json, strchr(giver, '.') + 1));
    assert_int_equal(at(places[0].json, "hidden_size")->valueint, cases[i].width);
    assert_string_equal(places[0].card.data, places[1].card.data);
    assert_true(same_memory(&places[0].memory, &places[1].memory));
    assert_int_equal(places[0].memory.parameters, cases[i].parameters);
    forget(&places[0]);
    forget(&places[1]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_of_the_settings_is_in_the_table),
      cmocka_unit_test(config_json_has_every_row),
      cmocka_unit_test(the_model_card_says_it),
      cmocka_unit_test(the_memory_estimate_counts_it),
      cmocka_unit_test(modeling_plm_reads_it),
      cmocka_unit_test(a_preset_is_described_as_what_it_gives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
