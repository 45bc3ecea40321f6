/* common/model/model_config: what is refused and in which words, at both sides of each bound; the
 * JSON of a model, and how two models differ. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/model/architecture.h"
#include "tests/common/model/model_config_case.h"
#include "tests/support/harness/must.h"

#define WITH(which, field, value, text)                      \
  do {                                                       \
    struct plm_model_config with = good(which);              \
    with.field = (value);                                    \
    assert_string_equal(faults_of(&with, NULL, NULL), text); \
  } while (0)

#define HEAD_WIDTHS "; these are the multiples of 8 from 16 to 128"
#define MIRROR " is not even, but encoder and decoder mirror each other"

static void limits_have_two_sides(void **state)
{
  (void)state;
  for (int a = 0; a < PLM_ARCHITECTURES; a++)
    if (!plm_architecture_rules((enum plm_architecture)a)->published) WITH(a, block, 32, "");
  WITH(PLM_TRANSFORMER, hidden_size, 65537, "hidden_size: 65537 exceeds the limit of 65536");
  WITH(PLM_TRANSFORMER, hidden_size, 65536,
       "hidden_size: 65536 divided by 4 heads is not a head width" HEAD_WIDTHS);
  WITH(PLM_TRANSFORMER, num_attention_heads, 513,
       "num_attention_heads: 513 exceeds the limit of 512");
  WITH(PLM_TRANSFORMER, num_attention_heads, 512,
       "hidden_size: 128 divided by 512 heads is not a head width" HEAD_WIDTHS);
  WITH(PLM_TRANSFORMER, num_hidden_layers, 1025,
       "num_hidden_layers: 1025 exceeds the limit of 1024");
  WITH(PLM_TRANSFORMER, num_hidden_layers, 1024, "");
  WITH(PLM_PATCH_UNET, num_extra_layers, 1025, "num_extra_layers: 1025 exceeds the limit of 1024");
  WITH(PLM_PATCH_UNET, num_extra_layers, 1024, "");
  WITH(PLM_PATCH_UNET, num_unet_layers, 129, "num_unet_layers: 129 exceeds the limit of 128");
  WITH(PLM_PATCH_UNET, num_unet_layers, 128, "");
  WITH(PLM_UNET, max_length, 2097152, "max_length: 2097152 exceeds the limit of 1048576");
  WITH(PLM_UNET, max_length, 1048576, "");
  WITH(PLM_UNET, vocab_size, 1025, "vocab_size: 1025 exceeds the limit of 1024");
  WITH(PLM_UNET, vocab_size, 1024, "");
  WITH(PLM_UNET, window_start, 1048577,
       "attention.window.start: 1048577 exceeds the limit of 1048576");
  WITH(PLM_UNET, window_start, 1048576, "");
  WITH(PLM_UNET, window_end, 1048577, "attention.window.end: 1048577 exceeds the limit of 1048576");
  WITH(PLM_UNET, window_end, 1048576, "");
  WITH(PLM_UNET, block, 1048577, "attention.block: 1048577 exceeds the limit of 1048576");
  WITH(PLM_UNET, block, 1048576, "");
  WITH(PLM_UNET, soft_logit_cap, -0.5, "soft_logit_cap: -0.5 is not a number from 0 to 1000000");
  WITH(PLM_UNET, soft_logit_cap, 1000001,
       "soft_logit_cap: 1e+06 is not a number from 0 to 1000000");
  WITH(PLM_UNET, soft_logit_cap, (double)NAN,
       "soft_logit_cap: nan is not a number from 0 to 1000000");
  WITH(PLM_UNET, soft_logit_cap, 0, "");
  WITH(PLM_UNET, soft_logit_cap, 1000000, "");
}

static void sizes_have_two_sides(void **state)
{
  (void)state;
  WITH(PLM_TRANSFORMER, hidden_size, 0, "hidden_size: must be above 0");
  WITH(PLM_TRANSFORMER, num_attention_heads, 0, "num_attention_heads: must be above 0");
  WITH(PLM_PATCH_UNET, num_attention_heads, 0, "num_attention_heads: must be above 0");
  WITH(PLM_TRANSFORMER, num_attention_heads, 1, "");
  WITH(PLM_TRANSFORMER, max_length, 0, "max_length: 0 is not a power of two");
  WITH(PLM_TRANSFORMER, max_length, 1, "max_length: 1 is not a power of two");
  WITH(PLM_TRANSFORMER, max_length, 2, "");
  WITH(PLM_TRANSFORMER, max_length, 3, "max_length: 3 is not a power of two");
  WITH(PLM_TRANSFORMER, vocab_size, 0, "vocab_size: must be above 0");
  WITH(PLM_TRANSFORMER, vocab_size, 1, "");
  WITH(PLM_TRANSFORMER, expansion_ratio, 0, "expansion_ratio: 0 leaves no MLP, or exceeds 64");
  WITH(PLM_TRANSFORMER, expansion_ratio, -1, "expansion_ratio: -1 leaves no MLP, or exceeds 64");
  WITH(PLM_TRANSFORMER, expansion_ratio, (double)NAN,
       "expansion_ratio: nan leaves no MLP, or exceeds 64");
  WITH(PLM_TRANSFORMER, expansion_ratio, 0.9 / 128,
       "expansion_ratio: 0.00703125 leaves no MLP, or exceeds 64");
  WITH(PLM_TRANSFORMER, expansion_ratio, 1.0 / 128, "");
  WITH(PLM_TRANSFORMER, expansion_ratio, 64, "");
  WITH(PLM_TRANSFORMER, expansion_ratio, 65, "expansion_ratio: 65 leaves no MLP, or exceeds 64");
  WITH(PLM_TRANSFORMER, num_hidden_layers, 0, "num_hidden_layers: must be above 0");
  WITH(PLM_TRANSFORMER, num_hidden_layers, 1, "");
  WITH(PLM_UNET, num_hidden_layers, 0, "num_hidden_layers: must be above 0");
  WITH(PLM_UNET, num_hidden_layers, 7, "num_hidden_layers: 7" MIRROR);
  WITH(PLM_UNET, num_hidden_layers, 2, "");
  WITH(PLM_PATCH_UNET, num_hidden_layers, 7, "");
  WITH(PLM_PATCH_UNET, num_hidden_layers, 0, "");
  WITH(PLM_PATCH_UNET, num_unet_layers, 0, "num_unet_layers: 0" MIRROR);
  WITH(PLM_PATCH_UNET, num_unet_layers, 1, "num_unet_layers: 1" MIRROR);
  WITH(PLM_PATCH_UNET, num_unet_layers, 2, "");
  WITH(PLM_PATCH_UNET, num_unet_layers, 7, "num_unet_layers: 7" MIRROR);
  WITH(PLM_UNET, num_unet_layers, 7, "");
}

static void keys_of_published_models_do_not_apply_to_ours(void **state)
{
  (void)state;
  WITH(PLM_UNET, intermediate_size, 512,
       "intermediate_size: does not apply to unet, whose MLP follows from expansion_ratio");
  WITH(PLM_TRANSFORMER, layer_norm_eps, 1e-5,
       "layer_norm_eps: does not apply to transformer, which has RMSNorm");
  WITH(PLM_UNET, emb_layer_norm_before, true, "emb_layer_norm_before: unet has none");
}

static void masks_need_their_sizes(void **state)
{
  struct plm_model_config model;
  (void)state;
  WITH(PLM_UNET, pattern_count, 0, "attention.pattern: has 0 entries; 1 to 64 are possible");
  WITH(PLM_UNET, pattern_count, 65, "attention.pattern: has 65 entries; 1 to 64 are possible");
  WITH(PLM_UNET, pattern_count, 64, "");
  WITH(PLM_UNET, block, 0,
       "attention.block: must be above 0, since the pattern has a `block` mask");
  WITH(PLM_UNET, block, 1, "");
#define NO_WINDOW \
  "attention.window.end: start and end must be above 0, since the pattern has a `local` mask"
  WITH(PLM_UNET, window_start, 0, NO_WINDOW);
  WITH(PLM_UNET, window_end, 0, NO_WINDOW);
  WITH(PLM_UNET, window_start, 1, "");
  WITH(PLM_UNET, window_end, 1, "");
  model = good(PLM_UNET);
  model.pattern_count = 1; /* only `local` */
  model.block = 0;
  assert_string_equal(faults_of(&model, NULL, NULL), "");
  model.pattern[0] = PLM_ATTENTION_DOCUMENT;
  model.window_start = model.window_end = 0;
  assert_string_equal(faults_of(&model, NULL, NULL), "");
}

static void heads_have_a_width(void **state)
{
  struct plm_model_config model = good(PLM_TRANSFORMER);
  static const struct {
    uint32_t width, heads;
    bool right;
  } cases[] = {{64, 4, true},   {32, 4, false},  {512, 4, true}, {544, 4, false},
               {130, 4, false}, {112, 4, false}, {96, 4, true},  {2048, 16, true}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char wanted[256];
    model.hidden_size = cases[i].width;
    model.num_attention_heads = cases[i].heads;
    snprintf(wanted, sizeof wanted,
             "hidden_size: %u divided by %u heads is not a head width" HEAD_WIDTHS, cases[i].width,
             cases[i].heads);
    assert_string_equal(faults_of(&model, NULL, NULL), cases[i].right ? "" : wanted);
  }
  WITH(PLM_PATCH_UNET, hidden_size, 160,
       "hidden_size: 160 is not a multiple of 64, the least common multiple of 64 and 4 heads");
  WITH(PLM_PATCH_UNET, hidden_size, 576,
       "hidden_size: 576 exceeds 128 times 4 heads; use more heads or a smaller width");
  WITH(PLM_PATCH_UNET, hidden_size, 512, "");
  model = good(PLM_PATCH_UNET);
  model.num_attention_heads = 6;
  assert_string_equal(faults_of(&model, NULL, NULL),
                      "hidden_size: 128 is not a multiple of 192, the least common multiple of 64 "
                      "and 6 heads");
  model.hidden_size = 192;
  assert_string_equal(faults_of(&model, NULL, NULL), "");
  model.num_attention_heads = 16; /* 12 wide on level 0 */
  assert_string_equal(faults_of(&model, NULL, NULL),
                      "hidden_size: at level 0, width 192 divided by 16 heads is not a head "
                      "width" HEAD_WIDTHS);
}

/* unit * ceil(D (n - 1 + k) / ((n - 1) unit)), at most the largest multiple of unit up to 128 H */
static void levels_have_widths(void **state)
{
  static const struct {
    uint32_t hidden, heads, layers, widths[4];
  } cases[] = {{128, 4, 6, {128, 192, 256}}, {192, 6, 8, {192, 384, 384, 384}},
               {512, 4, 6, {512, 512, 512}}, {448, 4, 8, {448, 512, 512, 512}},
               {320, 5, 6, {320, 640, 640}}, {256, 4, 2, {256}},
               {256, 4, 4, {256, 512}}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_model_config model = good(PLM_PATCH_UNET);
    model.hidden_size = cases[i].hidden;
    model.num_attention_heads = cases[i].heads;
    model.num_unet_layers = cases[i].layers;
    for (int level = 0; level < (int)cases[i].layers / 2; level++)
      assert_int_equal(plm_architecture_width(&model, level), cases[i].widths[level]);
    model.architecture = PLM_UNET;
    assert_int_equal(plm_architecture_width(&model, 2), cases[i].hidden);
  }
}

static bool all_but(void *context, const char *key)
{
  return strcmp(context, key) != 0;
}

/* Several faults are found together, but no rule is applied to a key at fault or unknown. */
static void rules_on_unknown_keys_are_left_out(void **state)
{
#define HEADS "num_attention_heads: must be above 0\n"
#define LENGTHS "max_length: 5 is not a power of two\n"
#define RATIO "expansion_ratio: 99 leaves no MLP, or exceeds 64\n"
#define BLOCK "attention.block: must be above 0, since the pattern has a `block` mask"
#define LAYERS "num_hidden_layers: 7" MIRROR
  static const struct {
    const char *unknown, *faults;
  } cases[] = {
      {"", HEADS LENGTHS RATIO BLOCK "\n" LAYERS},
      {"hidden_size", HEADS LENGTHS BLOCK "\n" LAYERS},
      {"architecture", HEADS LENGTHS RATIO BLOCK},
      {"attention.pattern", HEADS LENGTHS RATIO LAYERS},
      {"attention.block", HEADS LENGTHS RATIO LAYERS},
  };
  struct plm_model_config model = good(PLM_UNET);
  struct plm_error error = {0};
  (void)state;
  model.num_attention_heads = 0;
  model.max_length = 5;
  model.expansion_ratio = 99;
  model.block = 0;
  model.num_hidden_layers = 7;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(faults_of(&model, all_but, cases[i].unknown), cases[i].faults);
  assert_int_equal(plm_model_config_check(&model, &error), PLM_CONFIG);
  assert_string_equal(error.what, "must be above 0");
  assert_string_equal(error.where, "num_attention_heads");
  model = good(PLM_UNET);
  assert_int_equal(plm_model_config_check(&model, &error), PLM_OK);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char json[] =
    "{\"architecture\":\"patch_unet\",\"hidden_size\":128,\"num_attention_heads\":4,"
    "\"num_hidden_layers\":6,\"num_unet_layers\":6,\"num_extra_layers\":1,"
    "\"expansion_ratio\":2.5,\"soft_logit_cap\":15,\"tie_embeddings\":true,"
    "\"token_dropout\":false,\"max_length\":1024,\"vocab_size\":33,\"attention\":{"
    "\"pattern\":[\"document+local\",\"document+block\"],"
    "\"window\":{\"start\":128,\"end\":512,\"steps\":1000},\"block\":32}}";

static plm_status read_text(const char *text, struct plm_model_config *model,
                            struct plm_error *error)
{
  cJSON *parsed = cJSON_Parse(text);
  assert_non_null(parsed);
  const plm_status status = plm_model_config_from_json(parsed, model, error);
  cJSON_Delete(parsed);
  return status;
}

static void json_is_the_model(void **state)
{
  (void)state;
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    if (plm_architecture_rules((enum plm_architecture)a)->published) continue;
    const struct plm_model_config model = good(a);
    struct plm_model_config back;
    cJSON *made = plm_model_config_to_json(&model);
    char *text = cJSON_PrintUnformatted(made);
    if (a == PLM_PATCH_UNET) assert_string_equal(text, json);
    assert_int_equal(read_text(text, &back, NULL), PLM_OK);
    assert_memory_equal(&back, &model, sizeof back);
    cJSON_free(text);
    cJSON_Delete(made);
  }
}

/* A copy of the JSON in which `from` became `to`; the caller frees it. */
static char *with(const char *from, const char *to)
{
  const char *at = strstr(json, from);
  assert_non_null(at);
  char *text = must(calloc(1, sizeof json + strlen(to)));
  sprintf(text, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
  return text;
}

static void json_is_checked(void **state)
{
#define NOT(name, what) "config.json: \"" name "\" is missing or not " what
#define WHOLE "a whole number below 2^32"
#define PATTERN "[\"document+local\",\"document+block\"]"
#define UNKNOWN(name) "\"" name "\" is not document, causal, local, block, or these joined by +"
  static const struct {
    const char *from, *to, *what;
  } cases[] = {
      {"\"patch_unet\"", "\"conv\"",
       NOT("architecture", "transformer, unet, patch_unet, esm2 or esmc")},
      {"\"patch_unet\"", "3", NOT("architecture", "transformer, unet, patch_unet, esm2 or esmc")},
      {"\"hidden_size\":128", "\"hidden_size\":128.5", NOT("hidden_size", WHOLE)},
      {"\"hidden_size\":128", "\"hidden_size\":-1", NOT("hidden_size", WHOLE)},
      {"\"hidden_size\":128", "\"hidden_size\":4294967296", NOT("hidden_size", WHOLE)},
      {"\"hidden_size\":128", "\"hidden_size\":\"128\"", NOT("hidden_size", WHOLE)},
      {"\"hidden_size\":128,", "", NOT("hidden_size", WHOLE)},
      {"\"expansion_ratio\":2.5", "\"expansion_ratio\":true", NOT("expansion_ratio", "a number")},
      {"\"tie_embeddings\":true", "\"tie_embeddings\":1", NOT("tie_embeddings", "true or false")},
      {"\"steps\":1000", "\"steps\":0.5", NOT("steps", WHOLE)},
      {"\"start\":128", "\"start\":0.5", NOT("start", WHOLE)},
      {"\"end\":512,", "", NOT("end", WHOLE)},
      {"\"block\":32", "\"block\":null", NOT("block", WHOLE)},
      {PATTERN, "[]", NOT("attention.pattern", "a list of masks")},
      {PATTERN, "\"document\"", NOT("attention.pattern", "a list of masks")},
      {"\"document+block\"", "7", NOT("attention.pattern", "a list of masks")},
      {"\"document+block\"", "\"document+local+\"", UNKNOWN("document+local+")},
      {"\"document+block\"", "\"documents\"", UNKNOWN("documents")},
      {"\"document+block\"", "\"loca\"", UNKNOWN("loca")},
      {"\"vocab_size\":33", "\"vocab_size\":4294967295", "4294967295 exceeds the limit of 1024"},
  };
  struct plm_model_config model;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_error error = {0};
    char *text = with(cases[i].from, cases[i].to);
    assert_int_not_equal(read_text(text, &model, &error), PLM_OK);
    assert_string_equal(error.what, cases[i].what);
    free(text);
  }
  char *text = with("\"start\":128,", "");
  assert_int_equal(read_text(text, &model, NULL), PLM_OK);
  assert_int_equal(model.window_start, 512);
  free(text);
  text = with(",\"steps\":1000", "");
  assert_int_equal(read_text(text, &model, NULL), PLM_OK);
  assert_int_equal(model.window_steps, 0);
  free(text);
}

/* A pattern of so many entries. */
static plm_status read_pattern(int entries, struct plm_model_config *model)
{
  char list[66 * 20] = "[\"causal\"";
  for (int i = 1; i < entries; i++) strcat(list, ",\"block\"");
  strcat(list, "]");
  char *text = with(PATTERN, list);
  const plm_status status = read_text(text, model, NULL);
  free(text);
  return status;
}

static void a_pattern_has_64_entries_at_most(void **state)
{
  struct plm_model_config model;
  (void)state;
  assert_int_equal(read_pattern(65, &model), PLM_FORMAT);
  assert_int_equal(read_pattern(64, &model), PLM_OK);
  assert_int_equal(model.pattern_count, 64);
  assert_int_equal(model.pattern[0], PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL);
  assert_int_equal(model.pattern[63], PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_BLOCK);
}

static void names_of_masks_come_back(void **state)
{
  static const struct {
    const char *text, *name;
    unsigned kinds;
  } cases[] = {{"document", "document", 1},
               {"causal", "document+causal", 3},
               {"local+causal", "document+causal+local", 7},
               {"block+document", "document+block", 9},
               {"document+causal+local+block", "document+causal+local+block", 15}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t kinds = 0;
    char name[64];
    assert_int_equal(plm_attention_kind_parse(cases[i].text, &kinds, NULL), PLM_OK);
    assert_int_equal(kinds, cases[i].kinds);
    plm_attention_kind_name(kinds, name);
    assert_string_equal(name, cases[i].name);
  }
  assert_string_equal(plm_architecture_name(PLM_UNET), "unet");
  assert_string_equal(plm_objective_name(PLM_OBJECTIVE_CAUSAL), "causal");
  assert_false(plm_objective_is_labels(PLM_OBJECTIVE_MLM));
  assert_false(plm_objective_is_labels(PLM_OBJECTIVE_CAUSAL));
  assert_true(plm_objective_is_labels(PLM_OBJECTIVE_REGRESSION));
  assert_true(plm_objective_is_labels(PLM_OBJECTIVE_RESIDUES));
}

static void differences_are_listed(void **state)
{
  const struct plm_model_config model = good(PLM_PATCH_UNET);
  struct plm_model_config other = model;
  struct plm_model_difference differences[PLM_MODEL_KEYS];
  (void)state;
  assert_int_equal(plm_model_config_compare(&model, &other, differences), 0);
  other.architecture = PLM_UNET;
  other.expansion_ratio = 4;
  other.tie_embeddings = false;
  other.pattern_count = 1;
  other.window_steps = 0;
  other.block = 64;
  static const char *const wanted[][3] = {{"architecture", "\"patch_unet\"", "\"unet\""},
                                          {"expansion_ratio", "2.5", "4"},
                                          {"tie_embeddings", "true", "false"},
                                          {"attention.pattern", PATTERN, "[\"document+local\"]"},
                                          {"attention.window.steps", "1000", "0"},
                                          {"attention.block", "32", "64"}};
  assert_int_equal(plm_model_config_compare(&model, &other, differences), 6);
  for (int i = 0; i < 6; i++) {
    assert_string_equal(differences[i].key, wanted[i][0]);
    assert_string_equal(differences[i].values[0], wanted[i][1]);
    assert_string_equal(differences[i].values[1], wanted[i][2]);
  }
  /* What follows a key that only one of them has is compared, too. */
  struct plm_model_config esmc = good(PLM_ESMC);
  bool last = false;
  esmc.max_length = 2 * model.max_length;
  for (size_t i = plm_model_config_compare(&model, &esmc, differences); i > 0 && !last; i--)
    last = strcmp(differences[i - 1].key, "max_length") == 0;
  assert_true(last);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limits_have_two_sides),
      cmocka_unit_test(sizes_have_two_sides),
      cmocka_unit_test(keys_of_published_models_do_not_apply_to_ours),
      cmocka_unit_test(masks_need_their_sizes),
      cmocka_unit_test(heads_have_a_width),
      cmocka_unit_test(levels_have_widths),
      cmocka_unit_test(rules_on_unknown_keys_are_left_out),
      cmocka_unit_test(json_is_the_model),
      cmocka_unit_test(json_is_checked),
      cmocka_unit_test(a_pattern_has_64_entries_at_most),
      cmocka_unit_test(names_of_masks_come_back),
      cmocka_unit_test(differences_are_listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
