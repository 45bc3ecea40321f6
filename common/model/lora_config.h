/* Low-rank adapters (Hu et al. 2021, LoRA): a product W x becomes W x + (alpha / rank) B A x, where
 * only A (rank, in) and B (out, rank) are trained. doc/model.md#adapters has the formulas. */
#ifndef PLM_COMMON_MODEL_LORA_CONFIG_H
#define PLM_COMMON_MODEL_LORA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* The products of a block, in the order of its parameters. */
enum plm_lora_target {
  PLM_LORA_Q,
  PLM_LORA_K,
  PLM_LORA_V,
  PLM_LORA_O,
  PLM_LORA_GATE, /* only with SwiGLU */
  PLM_LORA_UP,
  PLM_LORA_DOWN,
  PLM_LORA_TARGETS
};
extern const char *const plm_lora_target_names[]; /* "q", "k", ..., NULL */

enum { PLM_LORA_MAX_RANK = 1024 };

struct plm_lora_config {
  uint32_t rank; /* 0: the model has no adapters; the other fields do not count then */
  double alpha;
  uint32_t targets; /* bits of enum plm_lora_target: which products of every block have one */
  double dropout;   /* of what A reads; below 1; only when training */
};

/* The rules that adapters break: PLM_CONFIG with the key in error->where. gated: the MLP is SwiGLU.
 */
plm_status plm_lora_config_check(const struct plm_lora_config *lora, bool gated,
                                 struct plm_error *error);

/* Whether both have adapters of the same shapes. */
bool plm_lora_same_shape(const struct plm_lora_config *a, const struct plm_lora_config *b);

#endif
