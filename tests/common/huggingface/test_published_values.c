/* Values of config.json of published weights: which are refused, and which are as good as a missing
 * one. */
#include <string.h>

#include "common/huggingface/huggingface.h"
#include "common/model/model_config.h"
#include "tests/support/harness/cmocka_all.h"

#define ESM                                                                           \
  "{\"model_type\":\"esm\",\"position_embedding_type\":\"rotary\",\"vocab_size\":33," \
  "\"hidden_size\":320,\"num_hidden_layers\":6,\"num_attention_heads\":20,"           \
  "\"intermediate_size\":1280,\"max_position_embeddings\":1026,\"mask_token_id\":32," \
  "\"pad_token_id\":1"
#define ESMC "{\"model_type\":\"esmc\""

static plm_status parse(const char *text, struct plm_model_config *model, struct plm_error *error)
{
  enum plm_objective objective;
  uint32_t window;
  return plm_huggingface_config_parse(text, strlen(text), model, &window, &objective, error);
}

static void a_wrong_value_is_refused_by_its_key(void **state)
{
  static const char count[] = " is missing or not a whole number below 2^32";
  static const char truth[] = " is missing or not true or false";
  static const struct {
    const char *text, *what, *where;
    plm_status status;
  } rows[] = {
      {ESMC ",\"num_key_value_heads\":\"40\"}", count, "num_key_value_heads", PLM_FORMAT},
      {ESMC ",\"num_key_value_heads\":-1}", count, "num_key_value_heads", PLM_FORMAT},
      {ESMC ",\"num_key_value_heads\":1.5}", count, "num_key_value_heads", PLM_FORMAT},
      {ESMC ",\"num_key_value_heads\":4294967296}", count, "num_key_value_heads", PLM_FORMAT},
      {ESMC ",\"num_key_value_heads\":4294967295}", "only the value of num_attention_heads",
       "num_key_value_heads", PLM_UNSUPPORTED},
      {ESMC ",\"head_dim\":\"64\"}", count, "head_dim", PLM_FORMAT},
      {ESMC ",\"head_dim\":64.5}", count, "head_dim", PLM_FORMAT},
      {ESMC ",\"hidden_size\":-1}", count, "hidden_size", PLM_FORMAT},
      {ESMC ",\"hidden_size\":4294967296}", count, "hidden_size", PLM_FORMAT},
      {ESMC ",\"rope_parameters\":5}", "\"rope_parameters\" is 5; only", "rope_parameters",
       PLM_UNSUPPORTED},
      {ESMC ",\"rope_parameters\":{\"rope_theta\":500000}}", "500000", "rope_parameters",
       PLM_UNSUPPORTED},
      {ESMC ",\"rope_parameters\":{\"rope_theta\":\"10000\"}}", "\"10000\"", "rope_parameters",
       PLM_UNSUPPORTED},
      {ESMC ",\"rope_parameters\":{\"rope_type\":1}}", "1", "rope_parameters", PLM_UNSUPPORTED},
      {ESM ",\"layer_norm_eps\":\"1e-5\"}", " is missing or not a number", "layer_norm_eps",
       PLM_FORMAT},
      {ESM ",\"token_dropout\":1}", truth, "token_dropout", PLM_FORMAT},
      {ESM ",\"emb_layer_norm_before\":\"no\"}", truth, "emb_layer_norm_before", PLM_FORMAT},
      {ESM ",\"is_decoder\":0}", "\"is_decoder\" is 0; only false", "is_decoder", PLM_UNSUPPORTED},
      {ESM ",\"tie_word_embeddings\":1}", "\"tie_word_embeddings\" is 1; only true",
       "tie_word_embeddings", PLM_UNSUPPORTED},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_model_config model;
    struct plm_error error = {0};
    if (parse(rows[i].text, &model, &error) != rows[i].status ||
        strstr(error.what, rows[i].what) == NULL || strcmp(error.where, rows[i].where) != 0)
      fail_msg("%s: status %d, \"%s\", %s", rows[i].text, (int)error.status, error.what,
               error.where);
  }
}

static void these_are_as_if_the_key_were_missing(void **state)
{
  static const char *const added[] = {"}",
                                      ",\"num_key_value_heads\":40}",
                                      ",\"num_key_value_heads\":null,\"head_dim\":null}",
                                      ",\"head_dim\":64}",
                                      ",\"rope_parameters\":{}}",
                                      ",\"rope_parameters\":null,\"rope_theta\":null}",
                                      ",\"rope_parameters\":{\"rope_type\":\"default\"}}",
                                      ",\"rope_parameters\":{\"rope_theta\":10000}}",
                                      ",\"rope_scaling\":null,\"hidden_act\":null}"};
  struct plm_model_config first = {0};
  (void)state;
  for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
    struct plm_model_config model;
    struct plm_error error = {0};
    char text[200] = ESMC;
    strcat(text, added[i]);
    if (parse(text, &model, &error) != PLM_OK) fail_msg("%s: \"%s\"", text, error.what);
    if (i == 0) first = model;
    assert_memory_equal(&model, &first, sizeof model);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wrong_value_is_refused_by_its_key),
      cmocka_unit_test(these_are_as_if_the_key_were_missing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
