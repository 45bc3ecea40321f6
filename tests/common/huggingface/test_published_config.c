/* config.json of published weights: what transformers writes is read, what is not computed here is
 * refused by the name of its key, and what is written is read again as the same model. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/huggingface/huggingface.h"
#include "common/huggingface/published_config.h"
#include "common/model/architecture.h"
#include "tests/support/harness/scratch.h"

/* As transformers 4 and 5 write them, without the keys that have no meaning here. */
#define ESM2_8M                                                                                   \
  "\"architectures\":[\"EsmForMaskedLM\"],\"model_type\":\"esm\",\"vocab_size\":33,"              \
  "\"hidden_size\":320,\"num_hidden_layers\":6,\"num_attention_heads\":20,"                       \
  "\"intermediate_size\":1280,\"layer_norm_eps\":1e-05,\"emb_layer_norm_before\":false,"          \
  "\"token_dropout\":true,\"max_position_embeddings\":1026,\"mask_token_id\":32,"                 \
  "\"pad_token_id\":1,\"esmfold_config\":null,\"vocab_list\":null,\"is_folding_model\":false,"    \
  "\"hidden_act\":\"gelu\",\"torch_dtype\":\"float32\",\"transformers_version\":\"4.25.0.dev0\"," \
  "\"use_cache\":true"
#define ESMC_300M                                                                            \
  "\"architectures\":[\"EsmcForMaskedLM\"],\"model_type\":\"esmc\",\"vocab_size\":64,"       \
  "\"hidden_size\":960,\"num_hidden_layers\":30,\"num_attention_heads\":15,\"head_dim\":64," \
  "\"num_key_value_heads\":15,\"intermediate_size\":2560,\"hidden_act\":\"silu\","           \
  "\"max_position_embeddings\":2048,\"rope_parameters\":{\"rope_theta\":10000.0,"            \
  "\"rope_type\":\"default\"},\"tie_word_embeddings\":false,\"attention_bias\":false,"       \
  "\"mlp_bias\":false,\"bos_token_id\":0,\"eos_token_id\":2,\"mask_token_id\":null"
#define ROTARY ",\"position_embedding_type\":\"rotary\""

static plm_status parse(const char *text, struct plm_model_config *model,
                        enum plm_objective *objective, struct plm_error *error)
{
  uint32_t window = 77;
  const plm_status status =
      plm_huggingface_config_parse(text, strlen(text), model, &window, objective, error);
  assert_int_equal(window, status == PLM_OK ? 0 : 77); /* published models attend to everything */
  return status;
}

static void esm2_and_esmc_are_read(void **state)
{
  (void)state;
  struct plm_model_config model;
  enum plm_objective objective;
  struct plm_error error = {0};
  if (parse("{" ESM2_8M ROTARY "}", &model, &objective, &error) != PLM_OK)
    fail_msg("%s (%s)", error.what, error.where);
  assert_int_equal(model.architecture, PLM_ESM2);
  assert_int_equal(model.hidden_size, 320);
  assert_int_equal(model.num_hidden_layers, 6);
  assert_int_equal(model.num_attention_heads, 20);
  assert_int_equal(model.intermediate_size, 1280);
  assert_int_equal(model.vocab_size, 33);
  assert_int_equal(model.max_positions, 1026);
  assert_int_equal(model.max_length, 1026);
  assert_true(model.layer_norm_eps == 1e-5 && model.token_dropout && model.tie_embeddings);
  assert_false(model.emb_layer_norm_before);
  assert_int_equal(objective, PLM_OBJECTIVE_MLM);

  assert_int_equal(parse("{" ESMC_300M "}", &model, &objective, &error), PLM_OK);
  assert_int_equal(model.architecture, PLM_ESMC);
  assert_int_equal(model.hidden_size, 960);
  assert_int_equal(model.intermediate_size, 2560);
  assert_int_equal(model.vocab_size, 64);
  assert_int_equal(model.max_length, 2048);
  assert_true(model.layer_norm_eps == 1e-5 && !model.tie_embeddings && !model.token_dropout);
  assert_ptr_equal(plm_huggingface_tokenizer(&model), plm_tokenizer_of(PLM_TOKENIZER_ESM));
}

/* Keys that are missing have the defaults of EsmConfig and EsmcConfig. */
static void missing_keys_have_the_defaults_of_transformers(void **state)
{
  (void)state;
  struct plm_model_config model;
  enum plm_objective objective;
  struct plm_error error = {0};
  assert_int_equal(
      parse("{\"model_type\":\"esm\",\"vocab_size\":33" ROTARY "}", &model, &objective, &error),
      PLM_OK);
  assert_int_equal(model.hidden_size, 768);
  assert_int_equal(model.num_hidden_layers, 12);
  assert_int_equal(model.intermediate_size, 3072);
  assert_true(model.layer_norm_eps == 1e-12 && !model.token_dropout);
  assert_int_equal(parse("{\"model_type\":\"esmc\"}", &model, &objective, &error), PLM_OK);
  assert_int_equal(model.hidden_size, 2560);
  assert_int_equal(model.num_hidden_layers, 80);
  assert_int_equal(model.num_attention_heads, 40);
  assert_int_equal(model.intermediate_size, 6912);
}

static void other_models_are_refused_by_the_key(void **state)
{
  (void)state;
  static const struct {
    const char *text, *what, *where, *hint;
    plm_status status;
  } refused[] = {
      {"{" ESM2_8M ",\"position_embedding_type\":\"absolute\"}",
       "\"position_embedding_type\" is \"absolute\"; only \"rotary\"", "position_embedding_type",
       "ESM-1b", PLM_UNSUPPORTED},
      {"{" ESM2_8M "}", "\"position_embedding_type\" is missing", "position_embedding_type",
       "ESM-1b", PLM_UNSUPPORTED},
      {"{\"is_folding_model\":true,\"position_embedding_type\":\"rotary\",\"model_type\":\"esm\"}",
       "\"is_folding_model\" is true", "is_folding_model", "ESMFold", PLM_UNSUPPORTED},
      {"{" ESM2_8M ROTARY ",\"is_decoder\":true}", "\"is_decoder\" is true", "is_decoder", "",
       PLM_UNSUPPORTED},
      {"{" ESM2_8M ROTARY ",\"tie_word_embeddings\":false}", "only true", "tie_word_embeddings", "",
       PLM_UNSUPPORTED},
      {"{" ESM2_8M ROTARY ",\"rope_theta\":20000}", "\"rope_theta\" is 20000; only 10000",
       "rope_theta", "", PLM_UNSUPPORTED},
      {"{" ESM2_8M ROTARY ",\"quantization_config\":{\"bits\":4}}",
       "\"quantization_config\" is {\"bits\":4}; only a model that is not quantized is supported",
       "quantization_config", "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"num_key_value_heads\":8}", "num_attention_heads",
       "num_key_value_heads", "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"head_dim\":32}", "hidden_size / num_attention_heads", "head_dim",
       "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "yarn",
       "rope_parameters", "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"rope_theta\":500000}", "\"rope_theta\" is 500000", "rope_theta",
       "", PLM_UNSUPPORTED},
      {"{" ESM2_8M ROTARY ",\"rope_scaling\":{\"factor\":2}}", "only null", "rope_scaling", "",
       PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"plm_pipeline\":{\"objective\":\"causal\",\"max_length\":8}}",
       "only mlm or masked_diffusion", "plm_pipeline.objective", "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"hidden_act\":\"gelu\"}", "only \"silu\"", "hidden_act", "",
       PLM_UNSUPPORTED},
      {"{\"model_type\":\"esmc\",\"max_position_embeddings\":2097152}", "1048576",
       "max_position_embeddings", "", PLM_UNSUPPORTED},
      {"{\"model_type\":\"bert\"}", "\"model_type\" is \"bert\"", "",
       "plm (plm-pipeline), esm (ESM-2) and esmc (ESM-C)", PLM_UNSUPPORTED},
      {"{\"model_type\":\"esm\",\"position_embedding_type\":\"rotary\"}",
       "\"vocab_size\" is missing", "vocab_size", "", PLM_FORMAT},
      {"{\"model_type\":\"esmc\",\"hidden_size\":\"960\"}", "whole number", "hidden_size", "",
       PLM_FORMAT},
      {"{\"model_type\":\"esmc\",\"hidden_size\":1000}", "not a head width", "hidden_size", "",
       PLM_CONFIG},
      {"{\"model_type\":\"esmc\",\"num_hidden_layers\":4000000000}", "exceeds the limit",
       "num_hidden_layers", "", PLM_CONFIG},
      {"{\"model_type\":\"esmc\",\"num_attention_heads\":0}", "above 0", "num_attention_heads", "",
       PLM_CONFIG},
      {"{\"model_type\":\"esmc\",\"plm_pipeline\":{\"objective\":\"none\"}}", "plm_pipeline",
       "plm_pipeline", "", PLM_FORMAT},
      {"{\"model_type\":\"plm\",\"architecture\":\"esmc\",\"hidden_size\":64,"
       "\"num_attention_heads\":4,\"num_hidden_layers\":2,\"intermediate_size\":256,"
       "\"layer_norm_eps\":1e-05,\"emb_layer_norm_before\":false,\"tie_embeddings\":false,"
       "\"token_dropout\":false,\"max_length\":64,\"vocab_size\":64}",
       "\"model_type\" is not that of EsmcForMaskedLM", "", "", PLM_FORMAT},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    struct plm_model_config model;
    enum plm_objective objective;
    struct plm_error error = {0};
    const plm_status status = parse(refused[i].text, &model, &objective, &error);
    if (status != refused[i].status || strstr(error.what, refused[i].what) == NULL ||
        strcmp(error.where, refused[i].where) != 0 || strstr(error.hint, refused[i].hint) == NULL)
      fail_msg("%zu: %d \"%s\" at \"%s\" (%s)", i, status, error.what, error.where, error.hint);
  }
}

/* Those of published weights, and no others, have a layout and a name for messages. */
static void a_published_architecture_has_a_layout(void **state)
{
  (void)state;
  for (int a = 0; a < PLM_ARCHITECTURES; a++) {
    const struct plm_architecture_rules *rules = plm_architecture_rules((enum plm_architecture)a);
    assert_int_equal(plm_published_class((enum plm_architecture)a) != NULL, rules->published);
    assert_int_equal(rules->title != NULL, rules->published);
  }
}

/* A run's max_length and objective are kept; without them the text has only transformers' keys. */
static void what_is_written_is_the_same_model(void **state)
{
  (void)state;
  static const char *const texts[] = {
      "{" ESM2_8M ROTARY "}",
      "{" ESM2_8M ROTARY
      ",\"plm_pipeline\":{\"max_length\":512,\"objective\":\"masked_diffusion\"}}",
      "{" ESMC_300M "}"};
  for (size_t i = 0; i < 3; i++) {
    struct plm_model_config model, again;
    enum plm_objective objective, objective_again;
    struct plm_error error = {0};
    assert_int_equal(parse(texts[i], &model, &objective, &error), PLM_OK);
    char *text = plm_huggingface_config_print_dtype(&model, 0, objective, "float16");
    assert_int_equal(strstr(text, "plm_pipeline") != NULL, i == 1);
    assert_non_null(strstr(text, plm_published_class(model.architecture)));
    assert_non_null(strstr(text, "\"float16\""));
    assert_non_null(strstr(text, "10000.0")); /* transformers 5 refuses 10000 */
    assert_null(strstr(text, "auto_map"));
    assert_int_equal(parse(text, &again, &objective_again, &error), PLM_OK);
    assert_memory_equal(&again, &model, sizeof model);
    assert_int_equal(objective_again, objective);
    free(text);
  }
}

/* Numbers that only transformers uses are those of the source, if its class has the key. */
static void numbers_of_the_source_are_kept(void **state)
{
  (void)state;
  static const struct {
    const char *text;
    const char *written[3], *absent[2]; /* of the text that is written */
  } cases[] = {
      {"{" ESM2_8M ROTARY ",\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0.25,"
       "\"initializer_range\":0.02,\"attention_dropout\":0.5,\"classifier_dropout\":null}",
       {"\"hidden_dropout_prob\":\t0.1,", "\"attention_probs_dropout_prob\":\t0.25,",
        "\"initializer_range\":\t0.02"},
       {"\"attention_dropout\"", "\"classifier_dropout\""}},
      {"{" ESM2_8M ROTARY ",\"initializer_range\":\"none\",\"hidden_dropout_prob\":1e999}",
       {"\"hidden_dropout_prob\":\t0.0,", "\"attention_probs_dropout_prob\":\t0.0,", ""},
       {"\"initializer_range\"", "\"attention_dropout\""}},
      {"{" ESMC_300M ",\"attention_dropout\":1,\"classifier_dropout\":0.125,"
       "\"initializer_range\":0.5,\"hidden_dropout_prob\":0.1}",
       {"\"attention_dropout\":\t1.0", "\"classifier_dropout\":\t0.125",
        "\"initializer_range\":\t0.5"},
       {"\"hidden_dropout_prob\"", "\"attention_probs_dropout_prob\""}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_model_config model, again;
    struct plm_published_kept kept;
    enum plm_objective objective;
    struct plm_error error = {0};
    scratch_write(scratch_path("config.json"), cases[i].text, strlen(cases[i].text));
    assert_int_equal(plm_published_kept_read(scratch_directory(), &kept, &error), PLM_OK);
    assert_int_equal(parse(cases[i].text, &model, &objective, &error), PLM_OK);
    char *text = plm_huggingface_config_print_kept(&model, 0, objective, "float32", NULL, &kept);
    for (int k = 0; k < 3; k++)
      if (strstr(text, cases[i].written[k]) == NULL)
        fail_msg("%s is not in %s", cases[i].written[k], text);
    for (int k = 0; k < 2; k++) assert_null(strstr(text, cases[i].absent[k]));
    assert_int_equal(parse(text, &again, &objective, &error), PLM_OK);
    assert_memory_equal(&again, &model, sizeof model);
    free(text);
  }
  struct plm_published_kept kept;
  struct plm_error error = {0};
  scratch_write(scratch_path("config.json"), "{", 1);
  assert_int_equal(plm_published_kept_read(scratch_directory(), &kept, &error), PLM_FORMAT);
  assert_string_equal(error.where, scratch_path("config.json"));
  assert_int_equal(plm_published_kept_read(scratch_path("none"), &kept, &error), PLM_NOT_FOUND);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(esm2_and_esmc_are_read),
      cmocka_unit_test(a_published_architecture_has_a_layout),
      cmocka_unit_test(missing_keys_have_the_defaults_of_transformers),
      cmocka_unit_test(other_models_are_refused_by_the_key),
      cmocka_unit_test(what_is_written_is_the_same_model),
      cmocka_unit_test(numbers_of_the_source_are_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
