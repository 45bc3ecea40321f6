/* qkv_value_forward and qkv_value_backward (ops.h) composed of simpler operators, for backends or
 * levels that have no fused kernel. */
#ifndef PLM_COMMON_OPS_VALUE_TABLE_H
#define PLM_COMMON_OPS_VALUE_TABLE_H

#include "common/ops/ops.h"

static inline struct plm_qkv plm_value_embed(struct plm_ops *ops, const struct plm_qkv *in,
                                             const struct plm_value_table *value)
{
  struct plm_qkv with_value = *in;
  with_value.vi = value->room;
  ops->token_mean_forward(ops, value->room, value->table, value->tokens, in->B * in->L,
                          in->H * in->K, value->V, value->level);
  return with_value;
}

static inline void plm_value_forward_in_parts(struct plm_ops *ops, act *out,
                                              const struct plm_qkv *in,
                                              const struct plm_value_table *value)
{
  const struct plm_qkv with_value = plm_value_embed(ops, in, value);
  ops->qkv_prepare_forward(ops, out, &with_value);
}

static inline void plm_value_backward_in_parts(struct plm_ops *ops, act *dqkv_raw, float *dtable,
                                               float *da, const act *dqkv, const struct plm_qkv *in,
                                               const struct plm_value_table *value)
{
  const struct plm_qkv with_value = plm_value_embed(ops, in, value);
  ops->qkv_prepare_backward(ops, dqkv_raw, value->room_gradient, da, dqkv, &with_value);
  ops->token_mean_backward(ops, dtable, value->room_gradient, value->tokens, in->B * in->L,
                           in->H * in->K, value->V, value->level);
}

#endif
