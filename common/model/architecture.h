/* The blocks of a configuration: their kinds, levels and widths, and where each takes its input
 * from. These are pure functions of struct plm_model_config. The parameter table, the layout of the
 * buffers, the masks and the FLOPs are derived from them, so that little other code has to
 * distinguish architectures.
 *
 * doc/model.md#architectures has the formulas. n = num_unet_layers / 2, v = log2(max_length).
 */
#ifndef PLM_COMMON_MODEL_ARCHITECTURE_H
#define PLM_COMMON_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/model_config.h"

enum plm_block_kind {
  PLM_BLOCK_PLAIN,     /* attention and MLP */
  PLM_BLOCK_MIXED,     /* the same, with x0 and a value embedding */
  PLM_BLOCK_BOTTLENECK /* x0 and MLP, no attention */
};

/* How the output of the previous block becomes this block's input x. */
enum plm_block_input {
  PLM_INPUT_SAME,  /* unchanged; block 0 takes the embeddings */
  PLM_INPUT_MERGE, /* PatchMerge from the level above */
  PLM_INPUT_EXPAND /* PatchExpand from the level below */
};

/* What an architecture fixes or leaves open in its configuration. */
struct plm_architecture_rules {
  /* Its layers are those of published weights: their MLP has intermediate_size and their norms
   * layer_norm_eps. It has no expansion_ratio, soft_logit_cap or attention pattern. */
  bool published;
  bool fixed_eps;       /* layer_norm_eps is the default, always */
  bool ties_embeddings; /* the value of tie_embeddings, if it is published */
  bool token_dropout;   /* published: whether it has token_dropout, and the default */
  bool embedding_norm;  /* published: whether it may have emb_layer_norm_before */
  double layer_norm_eps;
  uint32_t vocab_size;    /* default; 0: that of the tokenizer */
  uint32_t max_positions; /* default */
};
const struct plm_architecture_rules *plm_architecture_rules(enum plm_architecture architecture);
/* The default of intermediate_size: 4 D, or 8 D / 3 rounded up to a multiple of 256 for esmc; 0 if
 * it does not apply. */
uint32_t plm_architecture_intermediate(const struct plm_model_config *config);

struct plm_block_shape {
  enum plm_block_kind kind;
  enum plm_block_input input;
  char prefix[40];      /* of its parameters: "plm.encoder.3." */
  char value_table[64]; /* the name of its value-embedding table, "" if it has none */
  int level;            /* it has B * (L >> level) rows */
  uint32_t width;       /* D_k */
  uint32_t hidden;      /* F of its MLP */
  uint32_t entry;       /* its entry of attention.pattern; bottlenecks count as well */
  int resample;         /* k of the plm.merge.{k} or plm.expand.{k} before it, else -1 */
  int skip;             /* the block whose output it adds to its input, -1 if none */
  int skip_weight;      /* index of its element of plm.skip_weights, else -1 */
};

/* The number of blocks. They are numbered as they execute: encoder, decoder, extra layers. */
uint32_t plm_architecture_blocks(const struct plm_model_config *config);
void plm_architecture_block(const struct plm_model_config *config, uint32_t i,
                            struct plm_block_shape *block);

/* The number of levels: min(n - 1, v) + 1 for patch_unet, else 1. */
int plm_architecture_levels(const struct plm_model_config *config);
/* Blocks with attention are on levels below this; only bottlenecks are not. */
int plm_architecture_attention_levels(const struct plm_model_config *config);
/* The width of level k of a patch_unet: unit * ceil(D (n-1+k) / ((n-1) unit)), unit = lcm(64, H),
 * but at most the largest multiple of unit up to 128 H. D for n = 1 and for the other
 * architectures. */
uint32_t plm_architecture_width(const struct plm_model_config *config, int level);
/* The width of an MLP: intermediate_size, or F = 256 ceil(floor(expansion_ratio * width) / 256). */
uint32_t plm_architecture_hidden(const struct plm_model_config *config, uint32_t width);
/* The number of decoder blocks, each of which has a skip weight; 0 for the transformer. */
uint32_t plm_architecture_skips(const struct plm_model_config *config);
/* 2^(levels - 1): the model takes only chunk lengths that are multiples of this, whatever
 * data.document_alignment is. */
uint32_t plm_architecture_group(const struct plm_model_config *config);
/* The longest sequence that inference takes, in tokens. Positions are rotary, so max_length does
 * not limit it, unless max_length determines the blocks of a patch_unet (n > v). */
uint32_t plm_architecture_longest(const struct plm_model_config *config);

#endif
