/* The configuration of adapters: see lora_config.h. */
#include "common/model/lora_config.h"

#include <math.h>
#include <stddef.h>

const char *const plm_lora_target_names[] = {"q", "k", "v", "o", "gate", "up", "down", NULL};

static plm_status lora_fault(const char *key, struct plm_error *error)
{
  plm_error_where(error, "%s", key);
  return PLM_CONFIG;
}

plm_status plm_lora_config_check(const struct plm_lora_config *lora, bool gated,
                                 struct plm_error *error)
{
  if (lora->rank == 0) return PLM_OK;
  if (lora->rank > PLM_LORA_MAX_RANK) {
    plm_error_set(error, PLM_CONFIG, "%u exceeds the limit of %d", lora->rank, PLM_LORA_MAX_RANK);
    return lora_fault("lora.rank", error);
  }
  if (!(lora->alpha > 0.0) || !isfinite(lora->alpha)) {
    plm_error_set(error, PLM_CONFIG, "%g is not a number above 0", lora->alpha);
    return lora_fault("lora.alpha", error);
  }
  if (!(lora->dropout >= 0.0 && lora->dropout < 1.0)) {
    plm_error_set(error, PLM_CONFIG, "%g is not a rate from 0 to below 1", lora->dropout);
    return lora_fault("lora.dropout", error);
  }
  if (lora->targets == 0 || lora->targets >> PLM_LORA_TARGETS != 0) {
    plm_error_set(error, PLM_CONFIG, "names no product; choose some of q, k, v, o, up and down");
    return lora_fault("lora.targets", error);
  }
  if (gated || (lora->targets >> PLM_LORA_GATE & 1) == 0) return PLM_OK;
  plm_error_set(error, PLM_CONFIG,
                "`gate` is a product of a SwiGLU MLP only, such as that of esmc; leave it out");
  return lora_fault("lora.targets", error);
}

bool plm_lora_same_shape(const struct plm_lora_config *a, const struct plm_lora_config *b)
{
  return a->rank == b->rank && (a->rank == 0 || a->targets == b->targets);
}
