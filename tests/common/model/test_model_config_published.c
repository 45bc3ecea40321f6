/* common/model/model_config: what esm2 and esmc leave to choose, and their JSON. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>

#include <cjson/cJSON.h>

#include "common/model/architecture.h"
#include "tests/common/model/model_config_case.h"

/* Good models of published weights. */
static struct plm_model_config published(enum plm_architecture architecture)
{
  const bool esm2 = architecture == PLM_ESM2;
  return (struct plm_model_config){.architecture = architecture,
                                   .hidden_size = 480,
                                   .num_attention_heads = 20,
                                   .num_hidden_layers = 12,
                                   .tie_embeddings = esm2,
                                   .token_dropout = esm2,
                                   .pattern = {PLM_ATTENTION_DOCUMENT},
                                   .pattern_count = 1,
                                   .max_length = 1000,
                                   .vocab_size = esm2 ? 33 : 64,
                                   .intermediate_size = 1920,
                                   .layer_norm_eps = 1e-5,
                                   .max_positions = 1026};
}

#define PUBLISHED(which, field, value, text)                 \
  do {                                                       \
    struct plm_model_config with = published(which);         \
    with.field = (value);                                    \
    assert_string_equal(faults_of(&with, NULL, NULL), text); \
  } while (0)

static void published_models_leave_few_choices(void **state)
{
  (void)state;
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    if (!plm_architecture_rules((enum plm_architecture)a)->published) continue;
    PUBLISHED(a, max_length, 1000, "");
    PUBLISHED(a, max_length, 0, "max_length: must be above 0");
    PUBLISHED(a, vocab_size, 32,
              "vocab_size: 32 are fewer than the 33 tokens of the esm tokenizer");
    PUBLISHED(a, vocab_size, 33, "");
    PUBLISHED(a, intermediate_size, 1936, "");
    PUBLISHED(a, intermediate_size, (1 << 20) + 16,
              "intermediate_size: 1048592 exceeds the limit of 1048576");
    PUBLISHED(a, layer_norm_eps, 1e-5, "");
  }
  PUBLISHED(PLM_ESM2, intermediate_size, 0,
            "intermediate_size: 0 is not a multiple of 16, which esm2 needs");
  PUBLISHED(PLM_ESMC, intermediate_size, 1928,
            "intermediate_size: 1928 is not a multiple of 16, which esmc needs");
  PUBLISHED(PLM_ESM2, layer_norm_eps, 1e-12, "");
  PUBLISHED(PLM_ESM2, layer_norm_eps, 1e-20, "");
  PUBLISHED(PLM_ESM2, layer_norm_eps, 9e-21,
            "layer_norm_eps: 9e-21 is not a number from 1e-20 to 1");
  PUBLISHED(PLM_ESM2, layer_norm_eps, 0, "layer_norm_eps: 0 is not a number from 1e-20 to 1");
  PUBLISHED(PLM_ESM2, layer_norm_eps, (double)NAN,
            "layer_norm_eps: nan is not a number from 1e-20 to 1");
  PUBLISHED(PLM_ESM2, layer_norm_eps, 1.5, "layer_norm_eps: 1.5 is not a number from 1e-20 to 1");
  PUBLISHED(PLM_ESMC, layer_norm_eps, 1e-12,
            "layer_norm_eps: 1e-12 is not 1e-05, which esmc always has");
  PUBLISHED(PLM_ESM2, tie_embeddings, false,
            "tie_embeddings: the embedding table is always the second matrix of the head of esm2");
  PUBLISHED(PLM_ESMC, tie_embeddings, true,
            "tie_embeddings: the embedding table is never the second matrix of the head of esmc");
  PUBLISHED(PLM_ESM2, token_dropout, false, "");
  PUBLISHED(PLM_ESMC, token_dropout, true, "token_dropout: esmc has none");
  PUBLISHED(PLM_ESM2, emb_layer_norm_before, true, "");
  PUBLISHED(PLM_ESMC, emb_layer_norm_before, true, "emb_layer_norm_before: esmc has none");
  PUBLISHED(PLM_ESMC, soft_logit_cap, 16, "soft_logit_cap: esmc has no cap; use 0");
  PUBLISHED(PLM_ESM2, pattern[0], PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL,
            "attention.pattern: every layer of esm2 sees its whole document; use [document]");
}

/* to_json and from_json; emb_layer_norm_before as well, whose key ESM-1b has */
static void published_models_survive_json(void **state)
{
  (void)state;
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    if (!plm_architecture_rules((enum plm_architecture)a)->published) continue;
    struct plm_model_config model = published((enum plm_architecture)a), back;
    struct plm_error error = {0};
    model.emb_layer_norm_before = a == PLM_ESM2;
    cJSON *json = plm_model_config_to_json(&model);
    assert_false(cJSON_HasObjectItem(json, "expansion_ratio"));
    assert_false(cJSON_HasObjectItem(json, "attention"));
    assert_int_equal(plm_model_config_from_json(json, &back, &error), PLM_OK);
    back.max_positions = model.max_positions; /* of the folder, not of the model */
    assert_memory_equal(&back, &model, sizeof model);
    struct plm_model_difference differences[PLM_MODEL_KEYS];
    back.layer_norm_eps = 1e-6;
    assert_int_equal(plm_model_config_compare(&model, &back, differences), 1);
    assert_string_equal(differences[0].key, "layer_norm_eps");
    const struct plm_model_config other = good(PLM_UNET);
    assert_true(plm_model_config_compare(&model, &other, differences) > 1);
    assert_string_equal(differences[0].key, "architecture");
    cJSON_Delete(json);
  }
}

/* 4 D, and 8 D / 3 rounded up to a multiple of 256. */
static void the_width_of_the_mlp_follows_from_that_of_the_model(void **state)
{
  static const struct {
    uint32_t hidden, esm2, esmc;
  } cases[] = {{16, 64, 256}, {96, 384, 256}, {112, 448, 512}, {960, 3840, 2560}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_model_config esm2 = {.architecture = PLM_ESM2, .hidden_size = cases[i].hidden},
                                  esmc = {.architecture = PLM_ESMC, .hidden_size = cases[i].hidden};
    assert_int_equal(plm_architecture_intermediate(&esm2), cases[i].esm2);
    assert_int_equal(plm_architecture_intermediate(&esmc), cases[i].esmc);
  }
  const struct plm_model_config ours = good(PLM_UNET); /* which has no such size */
  assert_int_equal(plm_architecture_intermediate(&ours), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(published_models_leave_few_choices),
      cmocka_unit_test(published_models_survive_json),
      cmocka_unit_test(the_width_of_the_mlp_follows_from_that_of_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
