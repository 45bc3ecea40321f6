/* QKV prepare with the value embedding from its table, made of the operators it stands for: for
 * backends, or levels, that have no kernel of their own for it. */
#ifndef PLM_COMMON_OPS_VALUE_TABLE_H
#define PLM_COMMON_OPS_VALUE_TABLE_H

#include "common/ops/ops.h"

static inline void plm_value_forward_in_parts(struct plm_ops *ops, act *out, const act *qkv,
                                              const struct plm_value_table *value, const float *a,
                                              const float *cosine, const float *sine, int64_t B,
                                              int64_t L, int64_t H, int64_t K)
{
  ops->token_mean_forward(ops, value->room, value->table, value->tokens, B * L, H * K, value->V,
                          value->level);
  ops->qkv_prepare_forward(ops, out, qkv, value->room, a, cosine, sine, B, L, H, K);
}

static inline void plm_value_backward_in_parts(struct plm_ops *ops, act *dqkv_raw, float *dtable,
                                               float *da, const act *dqkv, const act *qkv,
                                               const struct plm_value_table *value, const float *a,
                                               const float *cosine, const float *sine, int64_t B,
                                               int64_t L, int64_t H, int64_t K)
{
  ops->token_mean_forward(ops, value->room, value->table, value->tokens, B * L, H * K, value->V,
                          value->level);
  ops->qkv_prepare_backward(ops, dqkv_raw, value->room_gradient, da, dqkv, qkv, value->room, a,
                            cosine, sine, B, L, H, K);
  ops->token_mean_backward(ops, dtable, value->room_gradient, value->tokens, B * L, H * K, value->V,
                           value->level);
}

#endif
