/* What a configuration's blocks are: kinds, levels, widths, where each takes its input from. Pure
 * functions of struct plm_model_config, asked by the parameter table, the buffer plan, the masks
 * and the FLOPs, so that the architectures are told apart here and nowhere else.
 *
 * Formulas: model.md, "Architectures". n = num_unet_layers / 2, v = log2(max_length).
 */
#ifndef PLM_COMMON_MODEL_ARCHITECTURE_H
#define PLM_COMMON_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

enum plm_block_kind {
  PLM_BLOCK_PLAIN,     /* attention and MLP */
  PLM_BLOCK_MIXED,     /* with x0 and a value embedding */
  PLM_BLOCK_BOTTLENECK /* with x0, no attention */
};

/* How the output of the block before becomes this block's input. */
enum plm_block_source {
  PLM_SOURCE_SAME,  /* as it is; for block 0 the embeddings */
  PLM_SOURCE_MERGE, /* PatchMerge from the level above */
  PLM_SOURCE_EXPAND /* PatchExpand from the level below */
};

struct plm_block_shape {
  enum plm_block_kind kind;
  enum plm_block_source source;
  char prefix[40];      /* of its parameters: "plm.encoder.3." */
  char value_table[64]; /* name of its value-embedding table, "" when it has none */
  int level;            /* its rows are B * (L >> level) */
  uint32_t width;       /* D_k */
  uint32_t hidden;      /* F of its MLP */
  uint32_t entry;       /* of attention.pattern; counted over bottlenecks too */
  int resample;         /* k of plm.merge.{k} or plm.expand.{k} for its source, else -1 */
  int skip;             /* the block whose output it adds to its input, -1: none */
  int skip_weight;      /* its element of plm.skip_weights, else -1 */
};

/* Blocks in the order they execute: encoder, decoder, extra layers. */
uint32_t plm_architecture_blocks(const struct plm_model_config *config);
/* Block i of them. */
void plm_architecture_block(const struct plm_model_config *config, uint32_t i,
                            struct plm_block_shape *block);

/* Levels in use: 1, and min(n - 1, v) + 1 for patch_unet. */
int plm_architecture_levels(const struct plm_model_config *config);
/* Blocks with attention stand on levels below this: all but a bottleneck's. */
int plm_architecture_attention_levels(const struct plm_model_config *config);
/* Width of a level: unit * ceil(D (n-1+k) / ((n-1) unit)), unit = lcm(64, H), at most the largest
 * multiple of unit that is <= 128 H; D for n = 1 and for the other architectures. */
uint32_t plm_architecture_width(const struct plm_model_config *config, int level);
/* F = 256 ceil(floor(expansion_ratio * width) / 256). */
uint32_t plm_architecture_hidden(const struct plm_model_config *config, uint32_t width);
/* Decoder blocks, each with a skip weight; 0 for the transformer. */
uint32_t plm_architecture_skips(const struct plm_model_config *config);
/* Lengths the model takes are multiples of this, whatever data.document_alignment says: 2^(levels
 * - 1). */
uint32_t plm_architecture_group(const struct plm_model_config *config);

#endif
