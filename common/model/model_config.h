/* A model's configuration: the keys of `model:` in pipeline.yaml, which a checkpoint's config.json
 * holds under the same names; and the objective that it was trained for. */
#ifndef PLM_COMMON_MODEL_MODEL_CONFIG_H
#define PLM_COMMON_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/model/head_config.h"
#include "common/model/lora_config.h"

/* Only its rows say what an architecture is: those of architecture.c, published_config.c and
 * presets.c. Other files ask plm_architecture_rules(). esm2 and esmc are those of published weights
 * (Lin et al. 2023; ESM Team 2024), as EsmForMaskedLM and EsmcForMaskedLM of transformers compute
 * them. */
enum plm_architecture {
  PLM_TRANSFORMER,
  PLM_UNET,
  PLM_PATCH_UNET,
  PLM_ESM2,
  PLM_ESMC,
  PLM_ARCHITECTURES /* how many there are */
};
enum plm_objective {
  PLM_OBJECTIVE_MLM,
  PLM_OBJECTIVE_MASKED_DIFFUSION,
  PLM_OBJECTIVE_CAUSAL,
  /* labels (head_config.h) */
  PLM_OBJECTIVE_REGRESSION,
  PLM_OBJECTIVE_CLASSIFICATION,
  PLM_OBJECTIVE_MULTILABEL,
  PLM_OBJECTIVE_RESIDUES
};
/* What the backward pass computes again instead of keeping it. */
enum plm_recompute { PLM_RECOMPUTE_NONE, PLM_RECOMPUTE_MLP, PLM_RECOMPUTE_BLOCK };

/* Bits of one entry of attention.pattern; PLM_ATTENTION_DOCUMENT is always set. */
enum plm_attention_kind {
  PLM_ATTENTION_DOCUMENT = 1,
  PLM_ATTENTION_CAUSAL = 2,
  PLM_ATTENTION_LOCAL = 4,
  PLM_ATTENTION_BLOCK = 8,
};

enum { PLM_MAX_PATTERN = 64 }; /* entries of attention.pattern */

/* The largest values that a model may have. They hold for pipeline.yaml and for config.json, so
 * that a file from elsewhere can neither take hours nor make a size overflow. */
enum {
  PLM_MODEL_MAX_WIDTH = 65536,     /* hidden_size; with it, every D_k */
  PLM_MODEL_MAX_HEADS = 512,       /* num_attention_heads */
  PLM_MODEL_MAX_LAYERS = 1024,     /* num_hidden_layers, num_extra_layers */
  PLM_MODEL_MAX_UNET = 128,        /* num_unet_layers */
  PLM_MODEL_MAX_LENGTH = 1 << 20,  /* max_length, attention.block, window: tokens */
  PLM_MODEL_MAX_VOCABULARY = 1024, /* vocab_size; the tokenizers have 33 and 261 tokens */
  PLM_MODEL_MAX_RATIO = 64,        /* expansion_ratio */
  PLM_MODEL_MAX_INTERMEDIATE = 1 << 20,
  PLM_MODEL_MAX_LOGIT_CAP = 1000000,
};

/* Everything that plm_model_open needs to know about a model. */
struct plm_model_config {
  enum plm_architecture architecture;
  uint32_t hidden_size;
  uint32_t num_attention_heads;
  uint32_t num_hidden_layers; /* of an architecture that does not merge positions */
  uint32_t num_unet_layers;   /* of one that does: patch_unet */
  uint32_t num_extra_layers;  /* the same */
  double expansion_ratio;
  double soft_logit_cap;
  bool tie_embeddings;
  bool token_dropout;
  uint8_t pattern[PLM_MAX_PATTERN]; /* plm_attention_kind bits of each entry */
  uint32_t pattern_count;
  uint32_t window_start, window_end, window_steps; /* tokens, tokens, steps */
  uint32_t block;                                  /* tokens; 0: none */
  uint32_t max_length;                             /* from data.max_length */
  uint32_t vocab_size; /* rows of the embedding and logits; at least the tokenizer's tokens */
  /* Of published architectures only; 0 or false for the others. */
  uint32_t intermediate_size; /* F of an MLP */
  double layer_norm_eps;
  bool emb_layer_norm_before;  /* esm2: a LayerNorm of the embeddings */
  uint32_t max_positions;      /* max_position_embeddings; 0: unknown. Inference warns above it */
  struct plm_head_config head; /* {0}: the language model's */
  struct plm_lora_config lora; /* {0}: no adapters */
};

/* Names of the values in files: NULL-terminated lists in the order of the enums. */
extern const char *const plm_architecture_names[];
extern const char *const plm_objective_names[];
extern const char *const plm_recompute_names[];

const char *plm_architecture_name(enum plm_architecture architecture);
const char *plm_objective_name(enum plm_objective objective);
/* Whether labels are predicted, and nothing is masked. */
bool plm_objective_is_labels(enum plm_objective objective);
/* Writes "document+causal" into name, and reads it back (PLM_FORMAT). */
void plm_attention_kind_name(unsigned kinds, char name[64]);
plm_status plm_attention_kind_parse(const char *name, uint8_t *kinds, struct plm_error *error);

/* A rule that a model breaks. */
struct plm_model_fault {
  const char *key; /* as in config.json: "hidden_size", "attention.block" */
  char what[256];  /* "65 divided by 4 heads is not a head width; ..." */
};
/* The number of keys that can be at fault; each has at most one fault. */
enum { PLM_MODEL_MAX_FAULTS = 24 };
/* Whether the value of a key is known; it is not if the file has a value that could not be read. */
typedef bool plm_model_key_known(void *context, const char *key);
/* Finds every key at fault. Rules on a key that is not known, or that is at fault already, are left
 * out. If known is NULL, all keys are known. Returns the number of faults. */
size_t plm_model_config_faults(const struct plm_model_config *model, plm_model_key_known *known,
                               void *context, struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS]);
/* PLM_CONFIG with the first fault; error->where is its key. */
plm_status plm_model_config_check(const struct plm_model_config *model, struct plm_error *error);

/* Convert a model to its part of config.json and back. common/huggingface adds the Hugging Face
 * entries. The caller deletes the cJSON object. */
struct cJSON;
struct cJSON *plm_model_config_to_json(const struct plm_model_config *model);
/* PLM_FORMAT: a key is missing or has another type. PLM_CONFIG as plm_model_config_check, with the
 * key in error->where. */
plm_status plm_model_config_from_json(const struct cJSON *json, struct plm_model_config *model,
                                      struct plm_error *error);

enum { PLM_MODEL_KEYS = 32, PLM_MODEL_KEY_SIZE = 64, PLM_MODEL_VALUE_SIZE = 128 };
struct plm_model_difference {
  char key[PLM_MODEL_KEY_SIZE]; /* "hidden_size", "attention.window.end" */
  char values[2][PLM_MODEL_VALUE_SIZE];
};
/* Lists the keys in which two models differ, in the order of config.json, each with both values as
 * JSON texts (cut to fit). Keys that only one of their architectures has are left out. Returns
 * their number. */
size_t plm_model_config_compare(const struct plm_model_config *a, const struct plm_model_config *b,
                                struct plm_model_difference differences[PLM_MODEL_KEYS]);

#endif
