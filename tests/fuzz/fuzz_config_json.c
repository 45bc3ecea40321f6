/* Fuzzes config.json: any text is either refused with a reason, or it describes a model whose
 * parameters, buffers and names can be computed, and it is printed and read again as the same. */
#include "tests/support/harness/fuzz_seed.h"

#include <stdlib.h>
#include <string.h>

#include "common/huggingface/huggingface.h"
#include "common/model/architecture.h"
#include "common/model/model.h"

#define COMMON                                                                                     \
  "\"hidden_size\":64,\"num_attention_heads\":2,\"num_hidden_layers\":4,\"num_unet_layers\":6,"    \
  "\"num_extra_layers\":1,\"expansion_ratio\":2.5,\"soft_logit_cap\":16,\"tie_embeddings\":false," \
  "\"token_dropout\":true,\"max_length\":64,\"vocab_size\":33,"
static const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\"architecture\":\"patch_unet\"," COMMON
              "\"attention\":{\"pattern\":[\"document\",\"local+causal\"],\"window\":{\"start\":64,"
              "\"end\":32,\"steps\":10},\"block\":0},\"window\":64,\"objective\":\"mlm\"}"),
    FUZZ_TEXT("{\"architecture\":\"unet\"," COMMON
              "\"attention\":{\"pattern\":[\"block\"],\"window\":{\"end\":64},\"block\":16},"
              "\"window\":64}"),
    FUZZ_TEXT("{\"architecture\":\"transformer\"," COMMON
              "\"attention\":{\"pattern\":[\"causal\"],\"window\":{\"end\":64},\"block\":0},"
              "\"window\":64,\"objective\":\"causal\"}"),
    FUZZ_TEXT("{\"model_type\":\"esm\",\"vocab_size\":33,\"hidden_size\":64,"
              "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128,"
              "\"layer_norm_eps\":1e-5,\"token_dropout\":true,\"emb_layer_norm_before\":true,"
              "\"max_position_embeddings\":1026,\"position_embedding_type\":\"rotary\","
              "\"rope_theta\":10000.0,\"plm_pipeline\":{\"max_length\":64,\"objective\":\"mlm\"}}"),
    FUZZ_TEXT("{\"model_type\":\"esmc\",\"vocab_size\":64,\"hidden_size\":64,"
              "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":256,"
              "\"num_key_value_heads\":4,\"head_dim\":16,\"tie_word_embeddings\":false,"
              "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000.0}}"),
    {0},
};

static void compute(const struct plm_model_config *model)
{
  struct plm_parameter *table;
  size_t count, elements, sum = 0;
  const plm_status status = plm_model_parameters(model, &table, &count, &elements, NULL);
  PLM_ASSERT(status == PLM_OK);
  for (size_t i = 0; i < count; i++) {
    PLM_ASSERT(table[i].rows > 0 && table[i].cols > 0 && table[i].offset == sum);
    PLM_ASSERT(table[i].count / (size_t)table[i].rows == (size_t)table[i].cols);
    sum += (table[i].count + 15) / 16 * 16;
  }
  PLM_ASSERT(sum == elements);
  free(table);
  struct plm_model_memory memory;
  if (plm_architecture_blocks(model) > 64) return; /* slow, and nothing new */
  for (int training = 0; training < 2; training++) {
    const struct plm_model_options options = {.max_chunks = 1, .training = training != 0};
    const plm_status counted = plm_model_memory(model, 4, &options, &memory, NULL);
    PLM_ASSERT(counted == PLM_OK || counted == PLM_LIMIT);
    if (counted == PLM_OK) PLM_ASSERT(memory.parameters == elements * sizeof(float));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  struct plm_model_config model, again;
  struct plm_error error = {0};
  uint32_t window, window_again;
  enum plm_objective objective, objective_again;
  if (plm_huggingface_config_parse((const char *)bytes, size, &model, &window, &objective,
                                   &error) != PLM_OK) {
    PLM_ASSERT(error.what[0] != '\0');
    return 0;
  }
  compute(&model);
  char *text = plm_huggingface_config_print(&model, window, objective);
  PLM_ASSERT(plm_huggingface_config_parse(text, strlen(text), &again, &window_again,
                                          &objective_again, &error) == PLM_OK);
  PLM_ASSERT(memcmp(&model, &again, sizeof model) == 0 && window == window_again &&
             objective == objective_again);
  free(text);
  return 0;
}

#include "tests/support/harness/fuzz_main.h"
