/* The blocks of a configuration: their kinds, levels and widths, and where each takes its input
 * from. These are pure functions of struct plm_model_config. The parameter table, the layout of the
 * buffers, the masks and the FLOPs are derived from them. Only its rows say what an architecture
 * is: those of architecture.c, published_config.c and presets.c. Other code asks for a rule of
 * struct plm_architecture_rules.
 *
 * doc/model.md#architectures has the formulas. n = num_unet_layers / 2, v = log2(max_length).
 */
#ifndef PLM_COMMON_MODEL_ARCHITECTURE_H
#define PLM_COMMON_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/model_config.h"
#include "common/ops/operands.h"

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

/* The norms before attention, before the MLP and after the last block. */
enum plm_norm_kind {
  PLM_NORM_RMS,         /* RMSNorm without a weight */
  PLM_NORM_LAYER,       /* LayerNorm with weight and bias */
  PLM_NORM_LAYER_WEIGHT /* LayerNorm with a weight and no bias */
};

enum plm_mlp_kind {
  PLM_MLP_RELU2, /* Wdown relu(Wup h)^2 */
  PLM_MLP_GELU,  /* Wdown gelu(Wup h), with the exact GELU */
  PLM_MLP_SWIGLU /* Wdown (silu(Wgate h) * (Wup h)) */
};

/* The names of a block's parameters between its prefix and ".weight" or ".bias"; NULL: none. */
struct plm_block_names {
  const char *query, *key, *value, *output;
  const char *q_norm, *k_norm; /* with PLM_QK_NORM_WIDTH */
  const char *attention_norm, *mlp_norm;
  const char *gate; /* with PLM_MLP_SWIGLU */
  const char *up, *down;
};

/* What all blocks of an architecture have in common. */
struct plm_block_traits {
  const char *prefix; /* of plain blocks, before their number */
  struct plm_block_names names;
  enum plm_norm_kind norm;
  enum plm_qk_norm qk_norm;
  enum plm_mlp_kind mlp;
  bool bias; /* of every product */
};

/* What tokenizer.json has. */
enum plm_tokenizer_json {
  PLM_TOKENIZER_JSON_WORDS, /* a WordLevel vocabulary, and all that turns text into its tokens */
  PLM_TOKENIZER_JSON_BPE,   /* the same vocabulary as a BPE without merges; no normalizer, no
                               pre-tokenizer and no decoder, which the class brings */
  PLM_TOKENIZER_JSON_NONE   /* there is no such file: the class reads vocab.txt */
};

/* What an architecture has besides its blocks, what it fixes, and what it leaves open. */
struct plm_architecture_rules {
  bool mirrors; /* a decoder mirrors the encoder and adds its outputs to its inputs; both also read
                   the embeddings x0 */
  bool merges;  /* mirrors, and levels merge positions: it has num_unet_layers and num_extra_layers
                   instead of num_hidden_layers */
  /* Its layers are those of published weights: their MLP has intermediate_size and their norms
   * layer_norm_eps. It has no expansion_ratio, soft_logit_cap or attention pattern. */
  bool published;
  bool fixed_eps;       /* layer_norm_eps is the default, always */
  bool ties_embeddings; /* the value of tie_embeddings, if it is published */
  bool token_dropout;   /* published: whether it has token_dropout, and the default */
  double layer_norm_eps;
  uint32_t vocab_size;    /* default; 0: that of the tokenizer */
  uint32_t max_positions; /* default */
  uint16_t chain_break;   /* the token between the chains of a protein, written |; 0: none */
  const char *title;      /* the name of the published models; NULL: that of the architecture */
  const char *tokenizer_class; /* of transformers; NULL: none of its own */
  enum plm_tokenizer_json tokenizer_json;
  const char *head_dropout; /* published: the key of config.json that only a head for labels obeys;
                               NULL: it obeys hidden_dropout_prob, as other layers do */
  struct {
    uint32_t times, over, multiple; /* D times / over, rounded up to a multiple */
  } intermediate;                   /* published: the default of intermediate_size */

  struct plm_block_traits block;
  const char *embedding;           /* the names of parameters, without ".weight" and ".bias" */
  const char *embedding_norm_name; /* NULL: it has no emb_layer_norm_before */
  const char *final_norm_name;     /* NULL: the norm after the last block has no parameters */
  const char *head_norm_name;      /* the LayerNorm after the head's GELU, or NULL: there is none */
  const char *head_bias;           /* the whole name of the bias of the logits */
  const char *residue_head;        /* the Linear of a head for labels of residues */
  /* Tensors that are no parameters: the rotary frequencies of a layer, after its prefix and its
   * number, and those of all layers in one. NULL: its files need none. */
  const char *frequencies, *shared_frequencies;
  enum plm_norm_kind final_norm;
  bool normalises_tables; /* the embedding's rows are normalised (RMSNorm) */
  bool scales_dropout;    /* token_dropout also scales the other rows of a document (ESM-2) */
  bool depth_scale;       /* what a block adds is divided by sqrt(num_hidden_layers / 36) */
  bool rotates_forward;   /* rotary: x_i cos - x_j sin, x_j cos + x_i sin for a pair i, j; else with
                             the opposite sign of the sine */
  bool small_weights;     /* initial weights are N(0, 0.02), as transformers draws them */
  bool pad_row;           /* the row of <pad> of the embedding is 0 at first */
};
const struct plm_architecture_rules *plm_architecture_rules(enum plm_architecture architecture);
/* The name of the product that an adapter is for. */
const char *plm_block_target_name(const struct plm_block_names *names, enum plm_lora_target target);
/* The default of intermediate_size; 0 if the architecture is not published. */
uint32_t plm_architecture_intermediate(const struct plm_model_config *config);
/* s = sqrt(num_hidden_layers / 36) with depth_scale, else 1. The model keeps s x instead of x in
 * its residual stream, so that blocks add their output as it is: every norm of the stream then uses
 * eps s^2, and the embeddings are scaled by s. */
double plm_architecture_stream_scale(const struct plm_model_config *config);
/* layer_norm_eps s^2, for the norms of the stream. */
double plm_architecture_stream_eps(const struct plm_model_config *config);
/* The id of <mask>. */
int32_t plm_architecture_mask_token(const struct plm_model_config *config);

struct plm_block_shape {
  const struct plm_block_traits *traits;
  enum plm_block_kind kind;
  enum plm_block_input input;
  char prefix[40];      /* of its parameters: "plm.encoder.3." */
  char value_table[64]; /* the name of its value-embedding table, "" if it has none */
  bool borrows_table;   /* that table is the one of the block that it mirrors */
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

/* The number of levels: min(n - 1, v) + 1 for patch_unet with n > 0, else 1. */
int plm_architecture_levels(const struct plm_model_config *config);
/* Blocks with attention are on levels below this; only bottlenecks are not. */
int plm_architecture_attention_levels(const struct plm_model_config *config);
/* The width of level k with merges: unit * ceil(D (n-1+k) / ((n-1) unit)), but at most the largest
 * multiple of unit up to 128 H; D for n = 1. unit = lcm(64, H). D without merges. */
enum { PLM_HEAD_WIDTH_MAX = 128, PLM_WIDTH_UNIT = 64 };
uint32_t plm_architecture_unit(const struct plm_model_config *config);
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
