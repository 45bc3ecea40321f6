/* What each operator is called with and how much work it is, one row for each entry of struct
 * plm_ops that runs something. Only observed.c includes this file.
 *
 *   ROW(parameters, name, kind, sizes, bytes, flops, type, parameter, type, parameter, ...)
 *
 * sizes, bytes and flops may use the parameters, A (the bytes of an activation) and `seen` (the
 * observation). */
#ifndef PLM_COMMON_OPS_OBSERVED_ROWS_H
#define PLM_COMMON_OPS_OBSERVED_ROWS_H

#define SIZES(...) \
  {                \
    __VA_ARGS__    \
  }
#define ND ((double)N * (double)D)
#define NIO (2.0 * (double)N * (double)I * (double)O)
#define NI ((double)N * (double)I)
#define NO ((double)N * (double)O)
#define OI ((double)O * (double)I)

#define MEMORY_ROWS(ROW)                                                                           \
  ROW(3, upload, COPIES, SIZES(0), (double)bytes, 0, void *, device, const void *, host, size_t,   \
      bytes)                                                                                       \
  ROW(3, download, COPIES, SIZES(0), (double)bytes, 0, void *, host, const void *, device, size_t, \
      bytes)                                                                                       \
  ROW(2, zero, COPIES, SIZES(0), (double)bytes, 0, void *, buffer, size_t, bytes)                  \
  ROW(3, copy, COPIES, SIZES(0), 2.0 * (double)bytes, 0, void *, to, const void *, from, size_t,   \
      bytes)                                                                                       \
  ROW(3, upload_beside, BESIDE, SIZES(0), (double)bytes, 0, void *, device, const void *, host,    \
      size_t, bytes)                                                                               \
  ROW(3, download_beside, BESIDE, SIZES(0), (double)bytes, 0, void *, host, const void *, device,  \
      size_t, bytes)

#define PRODUCT_ROWS(ROW)                                                                          \
  ROW(7, linear_forward, COMPUTES, SIZES(N, I, O), A *(NI + OI + (residual != NULL ? 2 : 1) * NO), \
      NIO, act *, y, const act *, x, const act *, w, const act *, residual, int64_t, N, int64_t,   \
      I, int64_t, O)                                                                               \
  ROW(7, linear_backward_input, COMPUTES, SIZES(N, I, O),                                          \
      A *(NO + OI + (accumulate ? 2 : 1) * NI), NIO, act *, dx, const act *, dy, const act *, w,   \
      int64_t, N, int64_t, I, int64_t, O, bool, accumulate)                                        \
  ROW(6, linear_relu2_forward, COMPUTES, SIZES(N, I, O), A *(NI + OI + NO), NIO, act *, hidden,    \
      const act *, x, const act *, w, int64_t, N, int64_t, I, int64_t, O)                          \
  ROW(7, linear_relu2_backward_input, COMPUTES, SIZES(N, I, O), A *(NO + OI + 2 * NI), NIO, act *, \
      dup, const act *, dy, const act *, w, const act *, hidden, int64_t, N, int64_t, I, int64_t,  \
      O)                                                                                           \
  ROW(7, linear_bias_forward, COMPUTES, SIZES(N, I, O),                                            \
      A *(NI + OI + (residual != NULL ? 2 : 1) * NO), NIO, act *, y, const act *, x,               \
      const struct plm_biased_linear *, layer, const act *, residual, int64_t, N, int64_t, I,      \
      int64_t, O)                                                                                  \
  ROW(7, linear_bias_gelu_forward, COMPUTES, SIZES(N, I, O),                                       \
      A *(NI + OI + (before != NULL ? 2 : 1) * NO), NIO, act *, hidden, act *, before,             \
      const act *, x, const struct plm_biased_linear *, layer, int64_t, N, int64_t, I, int64_t, O) \
  ROW(7, linear_gelu_backward_input, COMPUTES, SIZES(N, I, O), A *(NO + OI + 2 * NI), NIO, act *,  \
      dbefore, const act *, dy, const act *, w, const act *, before, int64_t, N, int64_t, I,       \
      int64_t, O)                                                                                  \
  ROW(6, linear_backward_weight, COMPUTES, SIZES(N, I, O), A *(NO + NI) + 8 * OI, NIO, float *,    \
      dw, const act *, dy, const act *, x, int64_t, N, int64_t, I, int64_t, O)                     \
  ROW(7, linear_bias_backward_weight, COMPUTES, SIZES(N, I, O),                                    \
      A *(NO + NI) + 8 * OI + 8 * (double)O, NIO, float *, dw, float *, dbias, const act *, dy,    \
      const act *, x, int64_t, N, int64_t, I, int64_t, O)                                          \
  ROW(6, quantise_rows, COMPUTES, SIZES(count, I), 5 * (double)count * (double)I, 0, void *,       \
      matrix, const float *, rows, int64_t, first, int64_t, count, int64_t, I, int64_t, O)         \
  ROW(7, linear_int8_forward, COMPUTES, SIZES(N, I, O),                                            \
      4 * (NI + (residual != NULL ? 2 : 1) * NO) + OI, NIO, act *, y, const act *, x,              \
      const struct plm_int8_linear *, layer, const act *, residual, int64_t, N, int64_t, I,        \
      int64_t, O)

#define NORM_ROWS(ROW)                                                                            \
  ROW(4, norm_forward, COMPUTES, SIZES(N, D), 2 * A * ND, 0, act *, out, const act *, x, int64_t, \
      N, int64_t, D)                                                                              \
  ROW(5, norm_backward, COMPUTES, SIZES(N, D), 4 * A * ND, 0, act *, dx, const act *, dh,         \
      const act *, x, int64_t, N, int64_t, D)                                                     \
  ROW(4, norm_rows_forward, COMPUTES, SIZES(N, D), 8 * ND, 0, float *, out, const float *, x,     \
      int64_t, N, int64_t, D)                                                                     \
  ROW(5, norm_rows_backward, COMPUTES, SIZES(N, D), 16 * ND, 0, float *, dx, const float *, dh,   \
      const float *, x, int64_t, N, int64_t, D)                                                   \
  ROW(5, layer_norm_forward, COMPUTES, SIZES(N, D), 2 * A * ND, 0, act *, out, const act *, x,    \
      const struct plm_layer_norm *, norm, int64_t, N, int64_t, D)                                \
  ROW(7, layer_norm_backward, COMPUTES, SIZES(N, D), 4 * A * ND, 0, act *, dx,                    \
      const struct plm_layer_norm_gradients *, to, const act *, dh, const act *, x,               \
      const struct plm_layer_norm *, norm, int64_t, N, int64_t, D)                                \
  ROW(5, mix_norm_forward, COMPUTES, SIZES(N, D), mix_forward_arrays(mix) * A * ND, 0, act *,     \
      mixed, act *, h, const struct plm_mix *, mix, int64_t, N, int64_t, D)                       \
  ROW(6, mix_norm_backward, COMPUTES, SIZES(N, D), mix_backward_arrays(to, mix) * A * ND, 0,      \
      const struct plm_mix_gradients *, to, act *, dmixed, const act *, dh,                       \
      const struct plm_mix *, mix, int64_t, N, int64_t, D)

#define TABLE_ROWS(ROW)                                                                           \
  ROW(7, token_mean_forward, COMPUTES, SIZES(N, D), A *ND + 4.0 * ldexp((double)N, level), 0,     \
      act *, out, const float *, table, const int32_t *, tokens, int64_t, N, int64_t, D, int64_t, \
      V, int, level)                                                                              \
  ROW(7, token_mean_backward, COMPUTES, SIZES(N, D), A *ND + 4.0 * ldexp((double)N, level), 0,    \
      float *, dtable, const act *, dout, const int32_t *, tokens, int64_t, N, int64_t, D,        \
      int64_t, V, int, level)

#define ATTENTION_ROWS(ROW)                                                                        \
  ROW(2, qkv_prepare_forward, COMPUTES, SIZES(in->B * in->L, in->H, in->K),                        \
      (in->vi != NULL ? 7 : 6) * A * qkv_elements(in), 0, act *, out, const struct plm_qkv *, in)  \
  ROW(5, qkv_prepare_backward, COMPUTES, SIZES(in->B * in->L, in->H, in->K),                       \
      (in->vi != NULL ? 11 : 8) * A * qkv_elements(in), 0, act *, dqkv_raw, act *, dvi, float *,   \
      da, const act *, dqkv, const struct plm_qkv *, in)                                           \
  ROW(3, qkv_value_forward, COMPUTES, SIZES(in->B * in->L, in->H, in->K),                          \
      6 * A * qkv_elements(in), 0, act *, out, const struct plm_qkv *, in,                         \
      const struct plm_value_table *, value)                                                       \
  ROW(6, qkv_value_backward, COMPUTES, SIZES(in->B * in->L, in->H, in->K),                         \
      9 * A * qkv_elements(in), 0, act *, dqkv_raw, float *, dtable, float *, da, const act *,     \
      dqkv, const struct plm_qkv *, in, const struct plm_value_table *, value)                     \
  ROW(5, attention_forward, COMPUTES, SIZES(shape->L, shape->H, shape->K),                         \
      4 * A * attention_elements(shape), 4 * attention_pairs(seen, mask, shape), act *, out,       \
      float *, lse, const struct plm_attention_inputs *, in, const struct plm_interval_mask *,     \
      mask, const struct plm_attention_shape *, shape)                                             \
  ROW(7, attention_backward, COMPUTES, SIZES(shape->L, shape->H, shape->K),                        \
      8 * A * attention_elements(shape), 10 * attention_pairs(seen, mask, shape),                  \
      const struct plm_attention_gradients *, to, const act *, dout, const act *, out,             \
      const float *, lse, const struct plm_attention_inputs *, in,                                 \
      const struct plm_interval_mask *, mask, const struct plm_attention_shape *, shape)           \
  ROW(5, narrow_mask, COMPUTES, SIZES(mask->B, mask->L, R),                                        \
      8.0 * (double)mask->B * mask->L + 20 * (double)R, 0, int32_t *, key_begin, int32_t *,        \
      key_end, const struct plm_interval_mask *, mask, const int32_t *, positions, int64_t, R)     \
  ROW(7, attention_cached, COMPUTES, SIZES(rows->rows, rows->H, rows->K),                          \
      6 * A * (double)(rows->rows * rows->H * rows->K), 0, act *, out, act *, key_cache, act *,    \
      value_cache, const act *, q, const act *, k, const act *, v, const struct plm_cached_rows *, \
      rows)

#define ACTIVATION_ROWS(ROW)                                                                       \
  ROW(3, round_weights, COMPUTES, SIZES(0), (4 + A) * (double)n, 0, act *, out, const float *, in, \
      size_t, n)                                                                                   \
  ROW(3, act_to_float, COMPUTES, SIZES(0), (4 + A) * (double)n, 0, float *, out, const act *, in,  \
      size_t, n)                                                                                   \
  ROW(3, gelu_forward, COMPUTES, SIZES(n), 2 * A * (double)n, 0, act *, out, const act *, x,       \
      int64_t, n)                                                                                  \
  ROW(4, gelu_backward, COMPUTES, SIZES(n), 3 * A * (double)n, 0, act *, dx, const act *, dy,      \
      const act *, x, int64_t, n)                                                                  \
  ROW(2, relu2_forward, COMPUTES, SIZES(n), 2 * A * (double)n, 0, act *, x, int64_t, n)            \
  ROW(3, relu2_backward, COMPUTES, SIZES(n), 3 * A * (double)n, 0, act *, dx, const act *, hidden, \
      int64_t, n)                                                                                  \
  ROW(4, swiglu_forward, COMPUTES, SIZES(N, F), 3 * A * (double)N * (double)F, 0, act *, hidden,   \
      const act *, gate_up, int64_t, N, int64_t, F)                                                \
  ROW(5, swiglu_backward, COMPUTES, SIZES(N, F), 5 * A * (double)N * (double)F, 0, act *,          \
      dgate_up, const act *, dhidden, const act *, gate_up, int64_t, N, int64_t, F)                \
  ROW(3, add, COMPUTES, SIZES(n), 3 * A * (double)n, 0, act *, x, const act *, y, int64_t, n)      \
  ROW(3, scale, COMPUTES, SIZES(n), 2 * A * (double)n, 0, act *, x, float, factor, int64_t, n)     \
  ROW(4, scale_rows, COMPUTES, SIZES(N, D), 2 * A * ND, 0, act *, x, const float *, factors,       \
      int64_t, N, int64_t, D)                                                                      \
  ROW(2, token_dropout, COMPUTES, SIZES(of->B, of->L), 16 * (double)of->B * (double)of->L, 0,      \
      float *, factors, const struct plm_token_dropout *, of)                                      \
  ROW(5, gather_rows, COMPUTES, SIZES(N, D), 2 * A * ND, 0, act *, out, const act *, x,            \
      const int32_t *, rows, int64_t, N, int64_t, D)                                               \
  ROW(5, scatter_rows, COMPUTES, SIZES(N, D), 3 * A * ND, 0, act *, out, const act *, x,           \
      const int32_t *, rows, int64_t, N, int64_t, D)

#define HEAD_ROWS(ROW)                                                                           \
  ROW(7, logits_forward, COMPUTES, SIZES(N, D, V), A *ND + 4.0 * (double)N * (double)V,          \
      2 * ND * (double)V, float *, logits, const act *, h, const act *, w, const float *, bias,  \
      int64_t, N, int64_t, D, int64_t, V)                                                        \
  ROW(3, soft_cap_forward, COMPUTES, SIZES(n), 8 * (double)n, 0, float *, logits, int64_t, n,    \
      float, cap)                                                                                \
  ROW(7, cross_entropy, COMPUTES, SIZES(N, V), 4 * (double)N * (double)V, 0, float *, row_loss,  \
      const float *, logits, const int32_t *, labels, const float *, weights,                    \
      const struct plm_loss_options *, options, int64_t, N, int64_t, V)                          \
  ROW(7, head_train, COMPUTES, SIZES(rows->N, rows->D, rows->V),                                 \
      2 * A * (double)rows->N * (double)rows->D,                                                 \
      6 * (double)rows->N * (double)rows->D * (double)rows->V, float *, row_loss, act *, ddense, \
      float *, dw, float *, dbias, const struct plm_head_rows *, rows, float, loss_scale,        \
      const struct plm_loss_options *, options)                                                  \
  ROW(7, logits_backward, COMPUTES, SIZES(N, D, V), 2 * A * ND + 4 * (double)N * (double)V,      \
      4 * ND * (double)V, const struct plm_logits_gradients *, to, const float *, dlogits,       \
      const act *, h, const act *, w, int64_t, N, int64_t, D, int64_t, V)

#define LABEL_ROWS(ROW)                                                                            \
  ROW(4, pool_rows, COMPUTES, SIZES(groups->R, D), A *(double)groups->R *(double)D, 0, act *, out, \
      const act *, x, const struct plm_row_groups *, groups, int64_t, D)                           \
  ROW(4, pool_rows_backward, COMPUTES, SIZES(groups->R, D), A *(double)groups->R *(double)D, 0,    \
      act *, dx, const act *, dout, const struct plm_row_groups *, groups, int64_t, D)             \
  ROW(3, tanh_forward, COMPUTES, SIZES(n), 2 * A * (double)n, 0, act *, out, const act *, x,       \
      int64_t, n)                                                                                  \
  ROW(4, tanh_backward, COMPUTES, SIZES(n), 3 * A * (double)n, 0, act *, dx, const act *, dy,      \
      const act *, y, int64_t, n)                                                                  \
  ROW(5, dropout, COMPUTES, SIZES(N, D), 2 * A * ND, 0, act *, out, const act *, x,                \
      const struct plm_dropout *, dropout, int64_t, N, int64_t, D)                                 \
  ROW(5, label_loss, COMPUTES, SIZES(rows->N, rows->O),                                            \
      (dlogits != NULL ? 8 : 4) * (double)rows->N * (double)rows->O, 0, float *, row_loss,         \
      float *, dlogits, const float *, outputs, const struct plm_label_rows *, rows, float,        \
      loss_scale)                                                                                  \
  ROW(3, choose_targets, COMPUTES, SIZES(from->B, from->L),                                        \
      10 * (double)from->B * (double)from->L, 0, const struct plm_target_rows *, to,               \
      const struct plm_target_tokens *, from, const struct plm_masking *, masking)

#define SUM_ROWS(ROW)                                                                              \
  ROW(3, sum_squares, COMPUTES, SIZES(0), arrays_bytes(vectors, count), 0, double *, sums,         \
      const struct plm_array *, vectors, size_t, count)                                            \
  ROW(3, add_sum, COMPUTES, SIZES(0), 4 * (double)n, 0, double *, sum, const float *, x, size_t,   \
      n)                                                                                           \
  ROW(3, sum_in_order, COMPUTES, SIZES(0), 8 * (double)n, 0, double *, sum, const double *, x,     \
      size_t, n)                                                                                   \
  ROW(6, sum_chunks, COMPUTES, SIZES(N, B, L), 8 * (double)N, 0, double *, sums, const float *, x, \
      const int32_t *, positions, int64_t, N, int64_t, B, int64_t, L)                              \
  ROW(4, sum_parts, COMPUTES, SIZES(0), 4.0 * (count + 1) * (double)n, 0, float *, to,             \
      const float *const *, parts, uint32_t, count, size_t, n)                                     \
  ROW(3, float_to_bf16, COMPUTES, SIZES(0), 6 * (double)n, 0, bf16 *, out, const float *, in,      \
      size_t, n)                                                                                   \
  ROW(3, bf16_to_float, COMPUTES, SIZES(0), 6 * (double)n, 0, float *, out, const bf16 *, in,      \
      size_t, n)

#define UPDATE_ROWS(ROW)                                                                          \
  ROW(1, decide_update, COMPUTES, SIZES(0), sizeof *update, 0, struct plm_update *, update)       \
  ROW(4, adam_step, COMPUTES, SIZES(0), adam_bytes(tensors, count), 0,                            \
      const struct plm_adam_tensor *, tensors, size_t, count, const struct plm_adam_options *,    \
      options, const struct plm_update *, update)                                                 \
  ROW(4, muon_step, COMPUTES, SIZES(0), muon_bytes(matrices, count), muon_flops(matrices, count), \
      const struct plm_muon_matrix *, matrices, size_t, count, float *, scratch,                  \
      const struct plm_update *, update)                                                          \
  ROW(4, average_step, COMPUTES, SIZES(0), 12 * (double)n, 0, float *, average, const float *, w, \
      size_t, n, const struct plm_update *, update)

#define MODEL_ROWS(ROW) PRODUCT_ROWS(ROW) NORM_ROWS(ROW) TABLE_ROWS(ROW) ATTENTION_ROWS(ROW)
#define OTHER_ROWS(ROW) ACTIVATION_ROWS(ROW) HEAD_ROWS(ROW) LABEL_ROWS(ROW) SUM_ROWS(ROW)
#define OBSERVED_ROWS(ROW) MEMORY_ROWS(ROW) MODEL_ROWS(ROW) OTHER_ROWS(ROW) UPDATE_ROWS(ROW)

#endif
