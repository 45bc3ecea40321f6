/* model.preset: the sizes of each, what overrides them, where they are refused, and what a resume
 * compares. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

struct sizes {
  uint32_t layers, width, heads;
  double ratio;
  enum plm_architecture architecture;
};

static void expect_sizes(const char *what, const struct plm_config *config, struct sizes wanted)
{
  const struct plm_model_config *model = &config->model;
  if (model->num_hidden_layers != wanted.layers || model->hidden_size != wanted.width ||
      model->num_attention_heads != wanted.heads || model->expansion_ratio != wanted.ratio ||
      model->architecture != wanted.architecture)
    fail_msg("%s: %s with %u layers, width %u, %u heads, ratio %g", what,
             plm_architecture_name(model->architecture), model->num_hidden_layers,
             model->hidden_size, model->num_attention_heads, model->expansion_ratio);
}

static void load(const char *text, struct plm_config *config)
{
  struct plm_error error = {0};
  if (plm_config_load_text(text, strlen(text), config, &error) != PLM_OK)
    fail_msg("%s: %s", text, error.what);
}

static void a_preset_gives_what_is_not_given(void **state)
{
  static const struct {
    const char *text;
    struct sizes sizes;
  } cases[] = {
      {"", {6, 128, 4, 2, PLM_PATCH_UNET}},
      {"model: {preset: none}", {6, 128, 4, 2, PLM_PATCH_UNET}},
      {"model: {preset: 8M}", {6, 320, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 35M}", {12, 480, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 150M}", {30, 640, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 650M}", {33, 1280, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 8M, architecture: unet}", {6, 320, 20, 4, PLM_UNET}},
      {"model: {preset: 35M, architecture: unet}", {12, 480, 20, 4, PLM_UNET}},
      {"model: {preset: 150M, architecture: unet}", {30, 640, 20, 4, PLM_UNET}},
      {"model: {preset: 650M, architecture: unet, num_hidden_layers: 34}",
       {34, 1280, 20, 4, PLM_UNET}},
      {"model: {preset: 3B}", {36, 2560, 40, 4, PLM_TRANSFORMER}},
      {"model: {preset: 15B}", {48, 5120, 40, 4, PLM_TRANSFORMER}},
      {"model: {preset: 8M, architecture: esm2}", {6, 320, 20, 2, PLM_ESM2}},
      {"model: {preset: 35M, architecture: esm2}", {12, 480, 20, 2, PLM_ESM2}},
      {"model: {preset: 300M}", {30, 960, 15, 2, PLM_ESMC}},
      {"model: {preset: 600M, architecture: esmc}", {36, 1152, 18, 2, PLM_ESMC}},
      {"model: {preset: 6B}", {80, 2560, 40, 2, PLM_ESMC}},
      {"model: {hidden_size: 640, preset: 8M}", {6, 640, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 8M, num_attention_heads: 4}", {6, 320, 4, 4, PLM_TRANSFORMER}},
      {"model: {preset: 8M, num_hidden_layers: 7}", {7, 320, 20, 4, PLM_TRANSFORMER}},
      {"model: {preset: 8M, expansion_ratio: 2.5}", {6, 320, 20, 2.5, PLM_TRANSFORMER}},
      /* a default that is given is given */
      {"model: {preset: 8M, hidden_size: 128, num_attention_heads: 4}",
       {6, 128, 4, 4, PLM_TRANSFORMER}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    load(cases[i].text, &config);
    expect_sizes(cases[i].text, &config, cases[i].sizes);
    plm_config_deinit(&config);
  }
}

/* The MLP of published weights has a width of its own, and their architecture implies the rest. */
static void published_sizes_are_those_of_their_models(void **state)
{
  static const struct {
    const char *text;
    uint32_t intermediate, vocabulary;
    bool tied, dropout;
  } cases[] = {
      {"model: {preset: 8M, architecture: esm2}", 1280, 33, true, true},
      {"model: {preset: 35M, architecture: esm2}", 1920, 33, true, true},
      {"model: {preset: 650M, architecture: esm2, token_dropout: false}", 5120, 33, true, false},
      {"model: {preset: 15B, architecture: esm2}", 20480, 33, true, true},
      {"model: {preset: 300M}", 2560, 64, false, false},
      {"model: {preset: 600M}", 3072, 64, false, false},
      {"model: {preset: 6B}", 6912, 64, false, false},
      {"model: {preset: 6B, vocab_size: 33, intermediate_size: 1024}", 1024, 33, false, false},
      {"model: {architecture: esm2, hidden_size: 160}", 640, 33, true, true},
      {"model: {architecture: esmc, hidden_size: 960, num_attention_heads: 15}", 2560, 64, false,
       false},
      {"model: {architecture: esmc, hidden_size: 2560, num_attention_heads: 40}", 6912, 64, false,
       false},
      {"model: {architecture: transformer}", 0, 33, false, false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    load(cases[i].text, &config);
    const struct plm_model_config *model = &config.model;
    const bool published = plm_architecture_rules(model->architecture)->published;
    if (model->intermediate_size != cases[i].intermediate ||
        model->vocab_size != cases[i].vocabulary || model->tie_embeddings != cases[i].tied ||
        model->token_dropout != cases[i].dropout ||
        model->soft_logit_cap != (published ? 0.0 : 16.0) ||
        model->layer_norm_eps != (published ? 1e-5 : 0.0))
      fail_msg("%s: MLP %u, vocabulary %u, tied %d, token dropout %d, cap %g, eps %g",
               cases[i].text, model->intermediate_size, model->vocab_size, model->tie_embeddings,
               model->token_dropout, model->soft_logit_cap, model->layer_norm_eps);
    plm_config_deinit(&config);
  }
}

static enum plm_origin_kind origin(const struct plm_config *config, const char *key)
{
  return config->origins[plm_setting_index(plm_setting_find(key))].kind;
}

/* A preset comes after every input, also one that is named before the preset's own. */
static void every_input_overrides_a_preset(void **state)
{
  struct plm_config config;
  const struct plm_config_override overrides[] = {{"model.num_attention_heads", "10"},
                                                  {"model.preset", "35M"}};
  (void)state;
  setenv("PLM_MODEL_PRESET", "150M", 1);
  setenv("PLM_MODEL_NUM_HIDDEN_LAYERS", "3", 1);
  assert_int_equal(plm_config_load(NULL, NULL, 0, &config, NULL, NULL), PLM_OK);
  expect_sizes("variables", &config, (struct sizes){3, 640, 20, 4, PLM_TRANSFORMER});
  plm_config_deinit(&config);
  assert_int_equal(plm_config_load(NULL, overrides, 2, &config, NULL, NULL), PLM_OK);
  expect_sizes("flags", &config, (struct sizes){3, 480, 10, 4, PLM_TRANSFORMER});
  assert_int_equal(origin(&config, "model.preset"), PLM_ORIGIN_FLAG);
  assert_int_equal(origin(&config, "model.num_attention_heads"), PLM_ORIGIN_FLAG);
  assert_int_equal(origin(&config, "model.num_hidden_layers"), PLM_ORIGIN_ENVIRONMENT);
  assert_int_equal(origin(&config, "model.hidden_size"), PLM_ORIGIN_PRESET);
  assert_int_equal(origin(&config, "model.architecture"), PLM_ORIGIN_PRESET);
  assert_int_equal(origin(&config, "model.expansion_ratio"), PLM_ORIGIN_PRESET);
  assert_int_equal(origin(&config, "model.num_unet_layers"), PLM_ORIGIN_DEFAULT);
  plm_config_deinit(&config);
  unsetenv("PLM_MODEL_PRESET");
  unsetenv("PLM_MODEL_NUM_HIDDEN_LAYERS");
}

/* Each file has one mistake, and only that one is reported. */
static void what_does_not_fit_is_refused(void **state)
{
  static const struct {
    const char *text, *problem;
  } cases[] = {
      {"model: {preset: 8M, architecture: patch_unet}",
       ":1:17: model.preset: 8M has layers of one width, but the levels of a "
       "patch_unet widen, so it would have another size; use model.architecture: transformer or "
       "unet, or model.preset: none with the sizes that you want"},
      /* 480 is no width of a patch_unet with 20 heads, which does not matter then */
      {"model: {architecture: patch_unet, preset: 35M, num_unet_layers: 12}",
       ":1:43: model.preset: 35M has layers of one width, but the levels of a "
       "patch_unet widen, so it would have another size; use model.architecture: transformer or "
       "unet, or model.preset: none with the sizes that you want"},
      {"model: {preset: 300M, architecture: esm2}",
       ":1:17: model.preset: 300M is a size of ESM-C; use model.architecture: esmc, or "
       "model.preset: none with the sizes that you want"},
      {"model: {preset: 8M, architecture: esmc}",
       ":1:17: model.preset: 8M is a size of ESM-2; use 300M, 600M or 6B for esmc"},
      {"model: {preset: 8M, architecture: esm2, expansion_ratio: 4}",
       ":1:58: model.expansion_ratio: does not apply to esm2; use model.intermediate_size"},
      {"model: {architecture: esm2, soft_logit_cap: 16}",
       ":1:45: model.soft_logit_cap: esm2 has no cap; use 0"},
      {"model: {architecture: esmc}\ndata: {tokenizer: byte}",
       ":2:19: data.tokenizer: esmc has the tokens of the tokenizer esm"},
      {"model: {architecture: esmc, emb_layer_norm_before: true}",
       ":1:52: model.emb_layer_norm_before: esmc has none"},
      {"model: {architecture: unet, emb_layer_norm_before: true}",
       ":1:52: model.emb_layer_norm_before: unet has none"},
      {"model: {architecture: unet, vocab_size: 64}",
       ":1:41: model.vocab_size: unet has as many as the tokenizer esm, 33; use auto"},
      {"model: {architecture: esm2}\ntrainer: {objective: causal}",
       ":2:22: trainer.objective: causal cannot be combined with esm2, whose layers see the whole "
       "document; use mlm or masked_diffusion"},
      {"model:\n  architecture: unet\n  preset: 650M\n",
       ":3:11: model.num_hidden_layers: 33 is not even, but encoder and decoder "
       "mirror each other; the value is that of model.preset 650M, unless you set another"},
      {"model: {architecture: unet, preset: 650M, num_hidden_layers: 31}",
       ":1:62: model.num_hidden_layers: 31 is not even, but encoder and decoder "
       "mirror each other"},
      {"model: {preset: 8M, num_attention_heads: 3}",
       ":1:17: model.hidden_size: 320 divided by 3 heads is not a head width; these "
       "are the multiples of 8 from 16 to 128; the value is that of model.preset 8M, unless you "
       "set another"},
      {"model: {preset: 8M, hidden_size: 128}",
       ":1:34: model.hidden_size: 128 divided by 20 heads is not a head width; these "
       "are the multiples of 8 from 16 to 128"},
      /* a preset that is not known says nothing of the sizes beside it */
      {"model: {preset: large, num_attention_heads: 20}",
       ":1:17: model.preset: expected none, 8M, 35M, 150M, 650M, 3B, 15B, 300M, 600M or 6B, found "
       "\"large\""},
      {"model: {preset: 8, hidden_size: 2560}",
       ":1:17: model.preset: expected none, 8M, 35M, 150M, 650M, 3B, 15B, 300M, 600M or 6B, found "
       "\"8\"; did "
       "you mean \"8M\"?"},
      {"model: {preset: 8M, hidden_size: wide}",
       ":1:34: model.hidden_size: expected a whole number, found \"wide\""},
      {"model: {preset: 8M, architecture: mlp}",
       ":1:35: model.architecture: expected transformer, unet, patch_unet, esm2 or esmc, found "
       "\"mlp\""},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    struct plm_config_problems *problems;
    const char *path = scratch_path("presets.yaml");
    scratch_write(path, cases[i].text, strlen(cases[i].text));
    assert_int_equal(plm_config_load(path, NULL, 0, &config, &problems, NULL), PLM_CONFIG);
    const char *problem = plm_config_problem(problems, 0);
    assert_true(strncmp(problem, path, strlen(path)) == 0);
    assert_string_equal(problem + strlen(path), cases[i].problem);
    assert_int_equal(plm_config_problems_count(problems), 1);
    plm_config_problems_free(problems);
  }
}

/* What a run folder keeps: all sizes beside the name, so that loading it again changes nothing. */
static void what_is_printed_has_the_sizes(void **state)
{
  static const char wanted[] =
      "\nmodel:\n  preset: 35M\n  architecture: transformer\n  hidden_size: 480\n"
      "  num_attention_heads: 20\n  num_hidden_layers: 8\n  num_unet_layers: 6\n"
      "  num_extra_layers: 1\n  expansion_ratio: 4\n";
  struct plm_config config, again;
  char *yaml, *second;
  (void)state;
  load("model: {preset: 35M, num_hidden_layers: 8}", &config);
  yaml = plm_config_print(&config);
  if (strstr(yaml, wanted) == NULL) fail_msg("%s", yaml);
  load(yaml, &again);
  second = plm_config_print(&again);
  assert_string_equal(yaml, second);
  assert_memory_equal(&config.model, &again.model, sizeof config.model);
  free(yaml);
  free(second);
  plm_config_deinit(&config);
  plm_config_deinit(&again);
}

/* Only the resolved sizes count. */
static void a_resume_compares_the_sizes(void **state)
{
  static const char written[] = "model: {architecture: transformer, hidden_size: 320, "
                                "num_attention_heads: 20, num_hidden_layers: 6, "
                                "expansion_ratio: 4}";
  static const struct {
    const char *before, *now, *refused; /* NULL: it resumes */
  } cases[] = {
      {"model: {preset: 8M}", "model: {preset: 8M}", NULL},
      {"model: {preset: 8M}", written, NULL},
      {written, "model: {preset: 8M}", NULL},
      {"model: {preset: 8M, hidden_size: 480, num_hidden_layers: 12}", "model: {preset: 35M}",
       NULL},
      {"model: {preset: 8M}", "model: {preset: 35M}",
       "model.hidden_size changed from 320 to 480, which makes it another run"},
      {"model: {preset: 8M}", "model: {preset: 8M, num_hidden_layers: 7}",
       "model.num_hidden_layers changed from 6 to 7, which makes it another run"},
      {"model: {preset: 8M}", "",
       "model.architecture changed from transformer to patch_unet, which makes it another run"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config before, now;
    struct plm_text changes = {0};
    struct plm_error error = {0};
    load(cases[i].before, &before);
    load(cases[i].now, &now);
    const plm_status status = plm_config_check_resume(&before, &now, &changes, &error);
    assert_int_equal(status, cases[i].refused == NULL ? PLM_OK : PLM_CONFIG);
    if (cases[i].refused != NULL) assert_string_equal(error.what, cases[i].refused);
    if (cases[i].refused == NULL) assert_int_equal(changes.length, 0);
    plm_text_deinit(&changes);
    plm_config_deinit(&before);
    plm_config_deinit(&now);
  }
}

static void sizes_that_were_overridden_are_named(void **state)
{
  static const struct {
    const char *text, *advice;
  } cases[] = {
      {"model: {preset: 8M}", ""},
      {"model: {hidden_size: 64, num_attention_heads: 2}", ""},
      {"model: {preset: 8M, hidden_size: 320, expansion_ratio: 4.0}", ""},
      {"model: {preset: 8M, expansion_ratio: 2.0, num_hidden_layers: 8, architecture: unet}",
       "model.architecture: unet is given and overrides the transformer of model.preset 8M\n"
       "model.num_hidden_layers: 8 is given and overrides the 6 of model.preset 8M\n"
       "model.expansion_ratio: 2 is given and overrides the 4 of model.preset 8M\n"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_config config;
    struct plm_text advice = {0};
    load(cases[i].text, &config);
    plm_config_advise(&config, &advice);
    assert_string_equal(advice.length > 0 ? advice.data : "", cases[i].advice);
    plm_text_deinit(&advice);
    plm_config_deinit(&config);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_preset_gives_what_is_not_given),
      cmocka_unit_test(published_sizes_are_those_of_their_models),
      cmocka_unit_test(every_input_overrides_a_preset),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(what_is_printed_has_the_sizes),
      cmocka_unit_test(a_resume_compares_the_sizes),
      cmocka_unit_test(sizes_that_were_overridden_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
