/* The architectures as a list of blocks: see architecture.h. */
#include "common/model/architecture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/corpus/tokenizer.h"

/* Our own architectures: the same blocks, with their parameters under these names. */
#define OUR_BLOCKS                                                                          \
  .block = {.prefix = "plm.layers.",                                                        \
            .names = {.query = "attention.query",                                           \
                      .key = "attention.key",                                               \
                      .value = "attention.value",                                           \
                      .output = "attention.output",                                         \
                      .up = "mlp.up",                                                       \
                      .down = "mlp.down"},                                                  \
            .norm = PLM_NORM_RMS,                                                           \
            .qk_norm = PLM_QK_NORM_HEAD,                                                    \
            .mlp = PLM_MLP_RELU2},                                                          \
  .embedding = "plm.embeddings", .head_bias = "lm_head.bias", .residue_head = "classifier", \
  .normalises_tables = true

const char *const plm_architecture_names[] = {
    [PLM_TRANSFORMER] = "transformer",
    [PLM_UNET] = "unet",
    [PLM_PATCH_UNET] = "patch_unet",
    [PLM_ESM2] = "esm2",
    [PLM_ESMC] = "esmc",
    [PLM_ARCHITECTURES] = NULL,
};

/* EsmForMaskedLM and EsmcForMaskedLM of transformers 5. */
static const struct plm_architecture_rules rules[PLM_ARCHITECTURES] = {
    [PLM_TRANSFORMER] = {OUR_BLOCKS},
    [PLM_UNET] = {OUR_BLOCKS, .mirrors = true},
    [PLM_PATCH_UNET] = {OUR_BLOCKS, .mirrors = true, .merges = true},
    [PLM_ESM2] = {.published = true,
                  .ties_embeddings = true,
                  .token_dropout = true,
                  .layer_norm_eps = 1e-5,
                  .max_positions = 1026,
                  .title = "ESM-2",
                  .tokenizer_class = "EsmTokenizer",
                  .tokenizer_json = PLM_TOKENIZER_JSON_NONE,
                  .intermediate = {.times = 4, .over = 1, .multiple = 1},
                  .block = {.prefix = "esm.encoder.layer.",
                            .names = {.query = "attention.self.query",
                                      .key = "attention.self.key",
                                      .value = "attention.self.value",
                                      .output = "attention.output.dense",
                                      .attention_norm = "attention.LayerNorm",
                                      .mlp_norm = "LayerNorm",
                                      .up = "intermediate.dense",
                                      .down = "output.dense"},
                            .norm = PLM_NORM_LAYER,
                            .qk_norm = PLM_QK_NORM_NONE,
                            .mlp = PLM_MLP_GELU,
                            .bias = true},
                  .embedding = "esm.embeddings.word_embeddings",
                  .embedding_norm_name = "esm.embeddings.layer_norm",
                  .final_norm_name = "esm.encoder.emb_layer_norm_after",
                  .head_norm_name = "lm_head.layer_norm",
                  .head_bias = "lm_head.bias",
                  .residue_head = "classifier",
                  .frequencies = "attention.self.rotary_embeddings.inv_freq",
                  .shared_frequencies = "esm.rotary_embeddings.inv_freq",
                  .final_norm = PLM_NORM_LAYER,
                  .scales_dropout = true,
                  .rotates_forward = true,
                  .small_weights = true,
                  .pad_row = true},
    [PLM_ESMC] = {.published = true,
                  .fixed_eps = true,
                  .layer_norm_eps = 1e-5,
                  .vocab_size = 64,
                  .max_positions = 2048,
                  .chain_break = 31, /* ESM-2 does not use this id */
                  .title = "ESM-C",
                  .tokenizer_class = "EsmcTokenizer",
                  .tokenizer_json = PLM_TOKENIZER_JSON_BPE,
                  .head_dropout = "classifier_dropout",
                  .intermediate = {.times = 8, .over = 3, .multiple = 256},
                  .block = {.prefix = "esmc.layers.",
                            .names = {.query = "self_attn.q_proj",
                                      .key = "self_attn.k_proj",
                                      .value = "self_attn.v_proj",
                                      .output = "self_attn.o_proj",
                                      .q_norm = "self_attn.q_norm",
                                      .k_norm = "self_attn.k_norm",
                                      .attention_norm = "input_layernorm",
                                      .mlp_norm = "post_attention_layernorm",
                                      .gate = "mlp.gate_proj",
                                      .up = "mlp.up_proj",
                                      .down = "mlp.down_proj"},
                            .norm = PLM_NORM_LAYER,
                            .qk_norm = PLM_QK_NORM_WIDTH,
                            .mlp = PLM_MLP_SWIGLU},
                  .embedding = "esmc.embed_tokens",
                  .final_norm_name = "esmc.norm",
                  .head_norm_name = "lm_head.layer_norm",
                  .head_bias = "lm_head.decoder.bias",
                  .residue_head = "score",
                  .final_norm = PLM_NORM_LAYER_WEIGHT,
                  .depth_scale = true,
                  .rotates_forward = true,
                  .small_weights = true},
};

const struct plm_architecture_rules *plm_architecture_rules(enum plm_architecture architecture)
{
  PLM_ASSERT((unsigned)architecture < PLM_ARCHITECTURES);
  return &rules[architecture];
}

const char *plm_block_target_name(const struct plm_block_names *names, enum plm_lora_target target)
{
  const char *const of[PLM_LORA_TARGETS] = {
      [PLM_LORA_Q] = names->query,   [PLM_LORA_K] = names->key,     [PLM_LORA_V] = names->value,
      [PLM_LORA_O] = names->output,  [PLM_LORA_GATE] = names->gate, [PLM_LORA_UP] = names->up,
      [PLM_LORA_DOWN] = names->down,
  };
  return of[target];
}

uint32_t plm_architecture_intermediate(const struct plm_model_config *config)
{
  const struct plm_architecture_rules *of = plm_architecture_rules(config->architecture);
  const uint32_t unit = of->intermediate.over * of->intermediate.multiple;
  if (unit == 0) return 0;
  return (of->intermediate.times * config->hidden_size + unit - 1) / unit *
         of->intermediate.multiple;
}

double plm_architecture_stream_scale(const struct plm_model_config *config)
{
  if (!plm_architecture_rules(config->architecture)->depth_scale) return 1.0;
  return sqrt(config->num_hidden_layers / 36.0);
}

double plm_architecture_stream_eps(const struct plm_model_config *config)
{
  const double s = plm_architecture_stream_scale(config);
  return config->layer_norm_eps * s * s;
}

int32_t plm_architecture_mask_token(const struct plm_model_config *config)
{
  /* a published embedding may have more rows than there are tokens */
  if (plm_architecture_rules(config->architecture)->published)
    return plm_tokenizer_of(PLM_TOKENIZER_ESM)->mask;
  return (int32_t)config->vocab_size - 1; /* the last token of every tokenizer */
}

/* v: the number of halvings after which one position is left. */
static int halvings(const struct plm_model_config *config)
{
  int v = 0;
  while (v < 31 && (config->max_length >> (v + 1)) != 0) v++;
  return v;
}

static bool merges(const struct plm_model_config *config)
{
  return plm_architecture_rules(config->architecture)->merges;
}

/* n, the blocks of the encoder and those of the decoder. */
static uint32_t half(const struct plm_model_config *config)
{
  if (!plm_architecture_rules(config->architecture)->mirrors) return 0;
  return (merges(config) ? config->num_unet_layers : config->num_hidden_layers) / 2;
}

uint32_t plm_architecture_skips(const struct plm_model_config *config)
{
  return half(config);
}

uint32_t plm_architecture_blocks(const struct plm_model_config *config)
{
  return merges(config) ? config->num_unet_layers + config->num_extra_layers
                        : config->num_hidden_layers;
}

int plm_architecture_levels(const struct plm_model_config *config)
{
  if (!merges(config) || half(config) == 0) return 1;
  const int deepest = (int)half(config) - 1, v = halvings(config);
  return (deepest < v ? deepest : v) + 1;
}

int plm_architecture_attention_levels(const struct plm_model_config *config)
{
  if (!merges(config)) return 1;
  const int n = (int)half(config), v = halvings(config);
  /* Extra layers attend on level 0 even if every layer of the U is a bottleneck. */
  const int levels = n < v ? n : v;
  return levels > 0 ? levels : 1;
}

uint32_t plm_architecture_group(const struct plm_model_config *config)
{
  return 1u << (plm_architecture_levels(config) - 1);
}

uint32_t plm_architecture_longest(const struct plm_model_config *config)
{
  const bool fixed = merges(config) && half(config) > (uint32_t)halvings(config);
  return fixed ? config->max_length : PLM_MODEL_MAX_LENGTH;
}

uint32_t plm_architecture_unit(const struct plm_model_config *config)
{
  uint32_t a = PLM_WIDTH_UNIT, b = config->num_attention_heads;
  while (b != 0) {
    const uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return PLM_WIDTH_UNIT / a * config->num_attention_heads;
}

uint32_t plm_architecture_width(const struct plm_model_config *config, int level)
{
  const uint64_t halves = half(config), width = config->hidden_size;
  if (!merges(config) || halves < 2) return config->hidden_size;
  const uint64_t unit = plm_architecture_unit(config), steps = (halves - 1) * unit;
  PLM_ASSERT(steps > 0); /* the number of heads was checked */
  const uint64_t wanted = unit * ((width * (halves - 1 + (uint32_t)level) + steps - 1) / steps);
  const uint64_t most = unit * ((uint64_t)PLM_HEAD_WIDTH_MAX * config->num_attention_heads / unit);
  return (uint32_t)(wanted < most ? wanted : most);
}

uint32_t plm_architecture_hidden(const struct plm_model_config *config, uint32_t width)
{
  if (plm_architecture_rules(config->architecture)->published) return config->intermediate_size;
  return (uint32_t)(256.0 * ceil(floor(config->expansion_ratio * (double)width) / 256.0));
}

/* Block i of the U: encoder block i, or decoder block i - n. */
static void unet_block(const struct plm_model_config *config, uint32_t i,
                       struct plm_block_shape *block)
{
  const bool patch = merges(config);
  const uint32_t n = half(config);
  const bool decoder = i >= n;
  const uint32_t number = decoder ? i - n : i;
  const uint32_t depth = decoder ? n - 1 - number : number; /* of the encoder it mirrors */
  const uint32_t v = (uint32_t)halvings(config);

  block->kind = patch && depth >= v ? PLM_BLOCK_BOTTLENECK : PLM_BLOCK_MIXED;
  block->level = patch ? (int)(depth < v ? depth : v) : 0;
  (void)snprintf(block->prefix, sizeof block->prefix, "plm.%s.%u.", decoder ? "decoder" : "encoder",
                 number);
  if (block->kind == PLM_BLOCK_MIXED && patch)
    (void)snprintf(block->value_table, sizeof block->value_table,
                   "plm.%s_value_embeddings.%u.weight", decoder ? "decoder" : "encoder", number);
  else if (block->kind == PLM_BLOCK_MIXED)
    (void)snprintf(block->value_table, sizeof block->value_table, "plm.value_embeddings.%u.weight",
                   depth);
  if (patch && !decoder && depth > 0 && depth <= v) {
    block->input = PLM_INPUT_MERGE;
    block->resample = (int)depth - 1;
  }
  if (patch && decoder && number > 0 && depth < v) {
    block->input = PLM_INPUT_EXPAND;
    block->resample = (int)depth;
  }
  if (decoder) {
    block->skip = (int)depth;
    block->skip_weight = (int)number;
    block->borrows_table = !patch;
  }
}

void plm_architecture_block(const struct plm_model_config *config, uint32_t i,
                            struct plm_block_shape *block)
{
  PLM_ASSERT(i < plm_architecture_blocks(config));
  const struct plm_block_traits *traits = &plm_architecture_rules(config->architecture)->block;
  *block = (struct plm_block_shape){.traits = traits,
                                    .kind = PLM_BLOCK_PLAIN,
                                    .input = PLM_INPUT_SAME,
                                    .resample = -1,
                                    .skip = -1,
                                    .skip_weight = -1};
  if (i < 2 * half(config))
    unet_block(config, i, block);
  else
    (void)snprintf(block->prefix, sizeof block->prefix, "%s%u.", traits->prefix,
                   i - 2 * half(config));
  block->width = plm_architecture_width(config, block->level);
  block->hidden = plm_architecture_hidden(config, block->width);
  block->entry = i % config->pattern_count;
}
