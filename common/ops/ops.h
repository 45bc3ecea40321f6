/* The operator table, struct plm_ops: each backend (kernels/cpu, kernels/cuda) fills it in, so the
 * model is written only once, against this table.
 *
 * Conventions
 * - `act` is a buffer of activations in the backend's precision, float or bf16, which is fixed when
 *   the backend is opened (ops->act_bytes). Everything else is fp32 unless noted otherwise.
 *   Operators compute in fp32 and round each result once, with the exceptions noted below.
 * - Sizes: N rows (B * L of the level), D width, V vocabulary, H heads, K head width. For products,
 *   I is the input width and O the output width. Suffixes give shapes: x_NI is (N, I). All arrays
 *   are row-major. There may be no rows (no chunks, where there is L), or no elements: then nothing
 *   is written, except that what is a sum (=) is 0.
 * - Buffers come from ops->allocate and live on the device. Parameters and learned scalars such as
 *   a, b and s are also device pointers, so that a recording stays valid when they change.
 * - Gradients of parameters are accumulated (+=) in fp32. Gradients of activations are overwritten
 *   (=) unless the comment says +=.
 * - The order of a reduction is fixed for a given backend, shape, precision and thread count.
 *   The same inputs therefore give the same bits.
 * - An operator may allocate memory the first time it runs with a shape, but not on later runs with
 *   the same shape.
 * - Operators return no status. If one fails (out of memory, a device error, a library error), its
 *   results are undefined and ops->synchronize reports the first such error from then on.
 */
#ifndef PLM_COMMON_OPS_OPS_H
#define PLM_COMMON_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/ops/device.h"
#include "common/ops/int8_matrix.h"
#include "common/ops/label_operands.h"
#include "common/ops/operands.h"
#include "common/ops/target_rule.h"
#include "common/ops/update.h"

struct plm_ops;
struct plm_collective;
struct plm_transport;       /* common/collective/transport.h */
struct plm_recording;       /* defined by the backend */
struct plm_ops_observation; /* common/ops/observed.h */

/* Totals of tuning since the backend was opened. */
struct plm_ops_tuned {
  uint32_t products; /* number of product shapes measured */
  double seconds;
};

struct plm_ops {
  const char *name; /* "cpu", "cuda" */
  const char *isa;  /* instruction set in use: "avx512", "avx2", "sm_90a", ...; in trainer.json */
  const char *products;  /* product library and its version; NULL: see export_algorithms */
  const char *processor; /* model name of the device; NULL for the machine's CPU */
  const char *driver;    /* versions of the device's driver and runtime; NULL for the CPU */
  const char *location;  /* PCI address of the device, "0000:3b:00.0"; NULL if there is none */
  /* Kernels that the device offers besides those for every device: which of them are in use,
   * "attention sm90, relu2 tuned"; NULL if there are none. They decide bits. */
  const char *kernels;
  const char *bf16_products; /* of the CPU in bf16: "native" or "fp32" (device.h); else NULL */
  const char *fallback;      /* why some of them, or all of CUDA, are not in use; else NULL */
  size_t act_bytes;          /* 4 or 2 */
  bool int8;                 /* it was opened for int8: the operators of int8 below are set */
  bool shares_rows;          /* it pays to compute equal rows once and to copy the results */
  uint32_t threads;
  void *context;                           /* the backend's state */
  struct plm_ops_observation *observation; /* of who watches the operators; NULL: nobody */

  /* ---- memory ---- */
  plm_status (*allocate)(struct plm_ops *ops, size_t bytes, void **buffer, struct plm_error *error);
  void (*release)(struct plm_ops *ops, void *buffer);
  /* The caller may reuse `host` as soon as the call returns. */
  void (*upload)(struct plm_ops *ops, void *device, const void *host, size_t bytes);
  /* Waits for the computation queued so far and for the copy itself. */
  void (*download)(struct plm_ops *ops, void *host, const void *device, size_t bytes);
  void (*zero)(struct plm_ops *ops, void *buffer, size_t bytes);
  void (*copy)(struct plm_ops *ops, void *to, const void *from, size_t bytes);
  plm_status (*synchronize)(struct plm_ops *ops, struct plm_error *error);
  /* Free and total bytes of the device's memory (of the machine's for the CPU); 0 if unknown. */
  void (*memory_size)(struct plm_ops *ops, uint64_t *free_bytes, uint64_t *total_bytes);
  /* Frees the memory that operators keep from call to call; the next calls take what they need. For
   * use after shapes that do not come again. NULL: nothing of this kind is kept (CUDA). */
  void (*release_workspace)(struct plm_ops *ops);
  void (*close)(struct plm_ops *ops);

  /* ---- a second queue: copies that run in parallel with the computation ---- */
  /* Host memory for these copies (pinned on CUDA). */
  plm_status (*allocate_host)(struct plm_ops *ops, size_t bytes, void **buffer,
                              struct plm_error *error);
  void (*release_host)(struct plm_ops *ops, void *buffer);
  /* Queues a copy. Copies run in the order of the calls, at some time between the call and
   * wait_copies. `host` must come from allocate_host. Until the copy has been waited for, the
   * caller must not write its source or use its destination. The computation of the source must be
   * complete or ordered before the copy: call synchronize or copies_follow first. */
  void (*upload_beside)(struct plm_ops *ops, void *device, const void *host, size_t bytes);
  void (*download_beside)(struct plm_ops *ops, void *host, const void *device, size_t bytes);
  /* Computation queued after this call starts when the copies queued before it are complete. The
   * host does not wait. */
  void (*compute_follows)(struct plm_ops *ops);
  /* Copies queued after this call start when the computation queued before it is complete. The host
   * does not wait. */
  void (*copies_follow)(struct plm_ops *ops);
  /* Waits on the host for the queued copies; synchronize waits for the computation. */
  plm_status (*wait_copies)(struct plm_ops *ops, struct plm_error *error);

  /* ---- recordings (CUDA graphs) ---- */
  /* Operators called between record_begin and record_end are recorded instead of executed. replay
   * executes them with the current contents of device memory; pointers and scalar arguments are
   * those of the recorded calls.
   *
   * While recording, do not allocate, release, upload, download, queue a copy, replay, wait or call
   * record_begin again. If such a call is made, or an operator fails, record_end reports the error
   * and returns no recording. Nothing was executed then, and the same calls may be made again to
   * execute them; this also holds if record_begin fails. Every operator must have run once before
   * with the shapes recorded, because the first run of a shape may allocate.
   *
   * All four are NULL if the backend cannot record (the CPU). */
  plm_status (*record_begin)(struct plm_ops *ops, struct plm_error *error);
  plm_status (*record_end)(struct plm_ops *ops, struct plm_recording **recording,
                           struct plm_error *error);
  void (*replay)(struct plm_ops *ops, struct plm_recording *recording);
  void (*release_recording)(struct plm_ops *ops, struct plm_recording *recording);

  /* ---- times of the device, for profiles ----
   * All three are NULL if operators have ended when they return (the CPU). */
  /* Makes room for so many marks, which are numbered from 0. Those that exist stay. */
  plm_status (*reserve_marks)(struct plm_ops *ops, uint32_t count, struct plm_error *error);
  /* Notes when the computation that is queued so far ends or, if `beside`, the copies of the second
   * queue. The host does not wait. Not while recording. */
  void (*mark)(struct plm_ops *ops, uint32_t mark, bool beside);
  /* Nanoseconds from one mark to another, both of which the host has waited for (synchronize,
   * wait_copies). NAN if the device cannot tell. */
  double (*between_marks)(struct plm_ops *ops, uint32_t from, uint32_t to);

  /* ---- precision ---- */
  /* Rounds n fp32 weights to the precision in which products read them (a plain copy in fp32). */
  void (*round_weights)(struct plm_ops *ops, act *out, const float *in, size_t n);
  void (*act_to_float)(struct plm_ops *ops, float *out, const act *in, size_t n);

  /* ---- products: Linear without bias; weights are (out, in), already rounded to act ---- */
  /* y_NO = x_NI w_OI^T, plus residual_NO if it is not NULL. y may equal residual. */
  void (*linear_forward)(struct plm_ops *ops, act *y, const act *x, const act *w,
                         const act *residual, int64_t N, int64_t I, int64_t O);
  /* dx_NI = dy_NO w_OI, or dx_NI += dy_NO w_OI if `accumulate`. */
  void (*linear_backward_input)(struct plm_ops *ops, act *dx, const act *dy, const act *w,
                                int64_t N, int64_t I, int64_t O, bool accumulate);
  /* hidden_NO = relu(x_NI w_OI^T)^2 (So et al. 2021, Primer). In bf16 the result is rounded once if
   * the backend fuses relu2 into the product; otherwise the product is rounded as well. */
  void (*linear_relu2_forward)(struct plm_ops *ops, act *hidden, const act *x, const act *w,
                               int64_t N, int64_t I, int64_t O);
  /* dup_NI = (dy_NO w_OI) 2 sqrt(hidden_NI): backward through a Linear (O, I) and the relu2 before
   * it. The square root of relu2's result recovers its positive part (bit for bit in fp32, and in
   * bf16 more accurately than a rounded copy would), so the argument need not be stored. */
  void (*linear_relu2_backward_input)(struct plm_ops *ops, act *dup, const act *dy, const act *w,
                                      const act *hidden, int64_t N, int64_t I, int64_t O);
  /* y_NO = x_NI w_OI^T + bias_O, plus residual_NO if it is not NULL. y may equal residual. In bf16
   * a backend may round the sum of product and residual before it adds the bias; this also holds
   * for the next operator. */
  void (*linear_bias_forward)(struct plm_ops *ops, act *y, const act *x,
                              const struct plm_biased_linear *layer, const act *residual, int64_t N,
                              int64_t I, int64_t O);
  /* before_NO = x_NI w_OI^T + bias_O and hidden_NO = gelu(before_NO), the exact GELU of the rounded
   * `before`, which backward needs. before may be NULL if nobody needs it, or equal hidden; hidden
   * has the same bits then. */
  void (*linear_bias_gelu_forward)(struct plm_ops *ops, act *hidden, act *before, const act *x,
                                   const struct plm_biased_linear *layer, int64_t N, int64_t I,
                                   int64_t O);
  /* dbefore_NI = (dy_NO w_OI) gelu'(before_NI): backward through a Linear (O, I) and the GELU
   * before it. In bf16 the product is rounded as well. dbefore must not equal before. */
  void (*linear_gelu_backward_input)(struct plm_ops *ops, act *dbefore, const act *dy, const act *w,
                                     const act *before, int64_t N, int64_t I, int64_t O);
  /* dw_OI += dy_NO^T x_NI */
  void (*linear_backward_weight)(struct plm_ops *ops, float *dw, const act *dy, const act *x,
                                 int64_t N, int64_t I, int64_t O);
  /* The same, and dbias_O += the sums of the columns of dy, in a fixed order. */
  void (*linear_bias_backward_weight)(struct plm_ops *ops, float *dw, float *dbias, const act *dy,
                                      const act *x, int64_t N, int64_t I, int64_t O);
  /* Bytes of workspace that these products take at most for operands which they widen to fp32 or
   * transpose, in the forward or the backward pass. NULL: they never do either (CUDA). */
  size_t (*linear_scratch)(const struct plm_ops *ops, int64_t N, int64_t I, int64_t O);

  /* ---- products of int8, for inference; NULL unless `int8` ---- */
  /* Quantises `count` rows of I fp32 weights as the rows [first, first + count) of a matrix of O
   * rows (int8_matrix.h), whose memory was zeroed before its first rows. */
  void (*quantise_rows)(struct plm_ops *ops, void *matrix, const float *rows, int64_t first,
                        int64_t count, int64_t I, int64_t O);
  /* y_NO = after(x_NI w_OI^T + bias_O + residual_NO), where each row of x is quantised by the rule
   * of the rows of weights, the integers are summed exactly, and a sum is multiplied by the product
   * of its two scales. residual may be NULL or equal y; I is at most PLM_INT8_INPUTS_MOST. */
  void (*linear_int8_forward)(struct plm_ops *ops, act *y, const act *x,
                              const struct plm_int8_linear *layer, const act *residual, int64_t N,
                              int64_t I, int64_t O);

  /* ---- norm: RMSNorm, no weight, eps 1e-6 (Zhang & Sennrich 2019) ---- */
  void (*norm_forward)(struct plm_ops *ops, act *out, const act *x, int64_t N, int64_t D);
  /* dx += d norm(x) dh. The statistics of each row are computed again from x. */
  void (*norm_backward)(struct plm_ops *ops, act *dx, const act *dh, const act *x, int64_t N,
                        int64_t D);
  /* The same for fp32 rows, used for the embedding table; the backward operator does dx +=. */
  void (*norm_rows_forward)(struct plm_ops *ops, float *out, const float *x, int64_t N, int64_t D);
  void (*norm_rows_backward)(struct plm_ops *ops, float *dx, const float *dh, const float *x,
                             int64_t N, int64_t D);

  /* ---- LayerNorm; out may equal x ---- */
  void (*layer_norm_forward)(struct plm_ops *ops, act *out, const act *x,
                             const struct plm_layer_norm *norm, int64_t N, int64_t D);
  /* dx_ND += the gradient of x, to->dweight_D += and to->dbias_D += from dh, the gradient of the
   * result. The statistics of each row are computed again from x. dx may equal neither dh nor x. */
  void (*layer_norm_backward)(struct plm_ops *ops, act *dx,
                              const struct plm_layer_norm_gradients *to, const act *dh,
                              const act *x, const struct plm_layer_norm *norm, int64_t N,
                              int64_t D);

  /* ---- block input: x' = b0 (x + s skip) + b1 p, h = norm(x') ---- */
  void (*mix_norm_forward)(struct plm_ops *ops, act *mixed, act *h, const struct plm_mix *mix,
                           int64_t N, int64_t D);
  /* G = dmixed + d norm(x') dh, where dmixed is the gradient that reaches x' through the residual
   * connection. x' is computed again from `mix`. The contents of dmixed are undefined afterwards
   * unless to->dx equals it. */
  void (*mix_norm_backward)(struct plm_ops *ops, const struct plm_mix_gradients *to, act *dmixed,
                            const act *dh, const struct plm_mix *mix, int64_t N, int64_t D);

  /* ---- token tables ---- */
  /* Mean of the table rows of each group of 2^level consecutive tokens:
   * out_ND[n] = mean_{j < 2^level} table[tokens[n*2^level + j]]. table is (V, D); tokens has
   * N*2^level elements. Used for x0 (normalised embeddings) and for value embeddings. */
  void (*token_mean_forward)(struct plm_ops *ops, act *out, const float *table,
                             const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level);
  /* dtable +=, in a fixed order without atomics */
  void (*token_mean_backward)(struct plm_ops *ops, float *dtable, const act *dout,
                              const int32_t *tokens, int64_t N, int64_t D, int64_t V, int level);

  /* ---- attention ---- */
  /* Prepares the raw products in->qkv: q and k are normalised as in->norm says and then rotated; v
   * becomes a0 v + a1 vi if vi is not NULL. The rotary tables have base 10000 and are computed in
   * double and rounded once. out (B, L, 3 H K) must not overlap the inputs. */
  void (*qkv_prepare_forward)(struct plm_ops *ops, act *out, const struct plm_qkv *in);
  /* Computes dqkv_raw from dqkv, the gradient of the prepared values; dvi = a1 dv and
   * da += (sum dv v_raw, sum dv vi). dqkv_raw may equal dqkv. If in->vi is NULL, da and dvi are not
   * used. */
  void (*qkv_prepare_backward)(struct plm_ops *ops, act *dqkv_raw, act *dvi, float *da,
                               const act *dqkv, const struct plm_qkv *in);
  /* The same with vi computed from its table (in->vi is not read). Forward is token_mean_forward
   * followed by qkv_prepare_forward; backward adds to dtable what token_mean_backward computes from
   * dvi. The results have the same bits as those operators' results, but the sums of da and dtable
   * may be in another order. */
  void (*qkv_value_forward)(struct plm_ops *ops, act *out, const struct plm_qkv *in,
                            const struct plm_value_table *value);
  void (*qkv_value_backward)(struct plm_ops *ops, act *dqkv_raw, float *dtable, float *da,
                             const act *dqkv, const struct plm_qkv *in,
                             const struct plm_value_table *value);
  /* out is (B, L, H K) and lse is (B, H, L). A query that sees no key has out = 0 exactly and
   * lse = +inf. */
  void (*attention_forward)(struct plm_ops *ops, act *out, float *lse,
                            const struct plm_attention_inputs *in,
                            const struct plm_interval_mask *mask,
                            const struct plm_attention_shape *shape);
  /* Overwrites the gradients that `to` points to. out and lse are the results of
   * attention_forward; dout has the shape of out. */
  void (*attention_backward)(struct plm_ops *ops, const struct plm_attention_gradients *to,
                             const act *dout, const act *out, const float *lse,
                             const struct plm_attention_inputs *in,
                             const struct plm_interval_mask *mask,
                             const struct plm_attention_shape *shape);

  /* The mask for a pass that reads the result of only R queries, at `positions` (R) into B L; -1 is
   * no position. key_begin and key_end (B, L) become those of `mask`, but empty for all other
   * queries, so that attention leaves these out. May be NULL: then attention would gain nothing. */
  void (*narrow_mask)(struct plm_ops *ops, int32_t *key_begin, int32_t *key_end,
                      const struct plm_interval_mask *mask, const int32_t *positions, int64_t R);

  /* Attention for incremental decoding. The k and v of every row are first stored at the row's
   * position in the caches (slots, H, capacity, K); then each query sees the keys [key_begin,
   * position] of its slot. One call may therefore hold several rows of a sequence (a prompt), but
   * no position twice. out is (rows, H K). */
  void (*attention_cached)(struct plm_ops *ops, act *out, act *key_cache, act *value_cache,
                           const act *q, const act *k, const act *v,
                           const struct plm_cached_rows *rows);

  /* ---- activations of the head and of the MLP ---- */
  /* the exact GELU, with erf; out may equal x */
  void (*gelu_forward)(struct plm_ops *ops, act *out, const act *x, int64_t n);
  /* dx = dy gelu'(x), n elements; dx may equal dy */
  void (*gelu_backward)(struct plm_ops *ops, act *dx, const act *dy, const act *x, int64_t n);
  /* x = relu(x)^2, n elements, and its backward pass dx = dx 2 sqrt(hidden), where hidden is the
   * result: for products between whose sum and relu2 something is added. */
  void (*relu2_forward)(struct plm_ops *ops, act *x, int64_t n);
  void (*relu2_backward)(struct plm_ops *ops, act *dx, const act *hidden, int64_t n);
  /* SwiGLU (Shazeer 2020): hidden_NF = silu(gate) up, where row n of gate_up (N, 2 F) holds the F
   * elements of gate and then those of up. hidden must not overlap gate_up. */
  void (*swiglu_forward)(struct plm_ops *ops, act *hidden, const act *gate_up, int64_t N,
                         int64_t F);
  /* dgate_up (N, 2 F) from dhidden (N, F); may equal gate_up, but not overlap dhidden */
  void (*swiglu_backward)(struct plm_ops *ops, act *dgate_up, const act *dhidden,
                          const act *gate_up, int64_t N, int64_t F);

  /* ---- residual stream ---- */
  /* x += y, n elements */
  void (*add)(struct plm_ops *ops, act *x, const act *y, int64_t n);
  /* x *= factor, n elements */
  void (*scale)(struct plm_ops *ops, act *x, float factor, int64_t n);
  /* x_ND[n] *= factors[n]. A factor of 0 gives zeros, whatever x is. */
  void (*scale_rows)(struct plm_ops *ops, act *x, const float *factors, int64_t N, int64_t D);
  /* The factors, (B, L), for scale_rows of the embeddings and of their gradient: 0 for a row whose
   * token is mask_token and for one of no document, and for the other rows of a document
   * (1 - 0.15 * 0.8) / (1 - masks / length), with the number of masks in it and its length; without
   * masks the factor is therefore the same for every length. */
  void (*token_dropout)(struct plm_ops *ops, float *factors, const struct plm_token_dropout *of);
  /* out[i] = x[rows[i]]. A row of -1 is gathered as zeros, and scatter_rows ignores it. */
  void (*gather_rows)(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                      int64_t D);
  /* out[rows[i]] += x[i]. The rows other than -1 must be distinct. */
  void (*scatter_rows)(struct plm_ops *ops, act *out, const act *x, const int32_t *rows, int64_t N,
                       int64_t D);

  /* ---- head ---- */
  /* logits_NV = h_ND w_VD^T + bias_V, in fp32 and before the soft cap */
  void (*logits_forward)(struct plm_ops *ops, float *logits, const act *h, const act *w,
                         const float *bias, int64_t N, int64_t D, int64_t V);
  /* logits = cap tanh(logits / cap), in place */
  void (*soft_cap_forward)(struct plm_ops *ops, float *logits, int64_t n, float cap);
  /* row_loss_N = weight times the cross-entropy of the label (with label smoothing and z-loss),
   * from capped logits. Labels are in [0, V). A row of weight 0 has loss 0 and does not count. */
  void (*cross_entropy)(struct plm_ops *ops, float *row_loss, const float *logits,
                        const int32_t *labels, const float *weights,
                        const struct plm_loss_options *options, int64_t N, int64_t V);
  /* Forward and backward of the head in one operator, for training. row_loss has the same bits as
   * gelu_forward, logits_forward, soft_cap_forward and cross_entropy give. ddense_ND (=), dw_VD
   * (+=) and dbias_V (+=) are the gradients of loss_scale * sum(row_loss). The results of GELU and
   * the logits are not returned, so they need not be stored for all rows at once. GELU's results
   * are rounded to act; the logits and their gradient are fp32. ddense must not equal dense. */
  void (*head_train)(struct plm_ops *ops, float *row_loss, act *ddense, float *dw, float *dbias,
                     const struct plm_head_rows *rows, float loss_scale,
                     const struct plm_loss_options *options);

  /* Backward of logits_forward: to->dh_ND = dlogits_NV w_VD, to->dw_VD += dlogits^T h and
   * to->dbias_V += the sums of the columns of dlogits, in fp32. dh must not equal h. */
  void (*logits_backward)(struct plm_ops *ops, const struct plm_logits_gradients *to,
                          const float *dlogits, const act *h, const act *w, int64_t N, int64_t D,
                          int64_t V);

  /* ---- heads for labels (label_operands.h) ---- */
  /* out_RD[r] = the mean of the rows of x in group r, added in their order; zeros for an empty
   * group. */
  void (*pool_rows)(struct plm_ops *ops, act *out, const act *x,
                    const struct plm_row_groups *groups, int64_t D);
  /* dx[n] += dout[r] / the size of r, for every row n of group r. */
  void (*pool_rows_backward)(struct plm_ops *ops, act *dx, const act *dout,
                             const struct plm_row_groups *groups, int64_t D);
  void (*tanh_forward)(struct plm_ops *ops, act *out, const act *x, int64_t n);
  /* dx = dy (1 - y^2), where y is the result of tanh_forward, n elements; dx may equal dy */
  void (*tanh_backward)(struct plm_ops *ops, act *dx, const act *dy, const act *y, int64_t n);
  /* out_ND = scale x where an element is kept, and 0 where it is dropped; out may equal x. The same
   * with the gradient of out gives the gradient of x. */
  void (*dropout)(struct plm_ops *ops, act *out, const act *x, const struct plm_dropout *dropout,
                  int64_t N, int64_t D);
  /* row_loss_N = the weighted loss of a row, added up over its outputs, and dlogits_NO (=) =
   * loss_scale times its gradient by the outputs. What is missing adds nothing. dlogits may equal
   * outputs, or be NULL. */
  void (*label_loss)(struct plm_ops *ops, float *row_loss, float *dlogits, const float *outputs,
                     const struct plm_label_rows *rows, float loss_scale);

  /* ---- targets ---- */
  /* Chooses the inputs and the labelled positions of a micro-batch on the device, by the rule of
   * target_rule.h (plm_masking_targets). The host has counted the labelled rows before, so that
   * they fit. The remaining rows up to to->capacity get position -1, label 0 and weight 0, so they
   * do not count. */
  void (*choose_targets)(struct plm_ops *ops, const struct plm_target_rows *to,
                         const struct plm_target_tokens *from, const struct plm_masking *masking);

  /* ---- sums; those in double are also in device memory ---- */
  /* sums[i] = the sum of the squares of vectors[i]. It does not depend on the other vectors. */
  void (*sum_squares)(struct plm_ops *ops, double *sums, const struct plm_array *vectors,
                      size_t count);
  void (*add_sum)(struct plm_ops *ops, double *sum, const float *x, size_t n); /* sum += */
  /* *sum = x[0] + x[1] + ..., added in this order */
  void (*sum_in_order)(struct plm_ops *ops, double *sum, const double *x, size_t n);
  /* sums_B[b] = the sum of x_N over the rows of chunk b, those with positions_N in [b L, (b + 1)
   * L). positions ascend, except that those of -1, which belong to no chunk, come last. Which bits
   * a chunk's sum has depends only on its own rows. */
  void (*sum_chunks)(struct plm_ops *ops, double *sums, const float *x, const int32_t *positions,
                     int64_t N, int64_t B, int64_t L);
  /* to[i] = the sum over p < count of parts[p][i], for i < n, added as a binary tree: neighbours 2j
   * and 2j + 1 first, then neighbours among these sums, and so on; an odd one rises unchanged. The
   * array `parts` is on the host. count is 1 to PLM_SUM_PARTS_MAX. `to` may be one of the parts. */
  void (*sum_parts)(struct plm_ops *ops, float *to, const float *const *parts, uint32_t count,
                    size_t n);
  /* Conversions to bf16, to nearest with ties to even, and back, whatever the precision of
   * activations is. The arrays do not overlap. */
  void (*float_to_bf16)(struct plm_ops *ops, bf16 *out, const float *in, size_t n);
  void (*bf16_to_float)(struct plm_ops *ops, float *out, const bf16 *in, size_t n);

  /* ---- optimizer, fp32; `update` is in device memory ---- */
  /* Computes update->decision from the inputs and the sums. The operators below read it and change
   * nothing if it says that the step is skipped. */
  void (*decide_update)(struct plm_ops *ops, struct plm_update *update);
  void (*adam_step)(struct plm_ops *ops, const struct plm_adam_tensor *tensors, size_t count,
                    const struct plm_adam_options *options, const struct plm_update *update);
  /* For each matrix: an EMA of the gradient as momentum, Nesterov, five Newton-Schulz steps, weight
   * decay and update. The matrices must not share memory. On the CPU, the result for a matrix does
   * not depend on the other matrices in the call. CUDA multiplies matrices of equal shape as one
   * batch, for which its library may choose other kernels, so the bits can differ. scratch has
   * muon_scratch floats. */
  void (*muon_step)(struct plm_ops *ops, const struct plm_muon_matrix *matrices, size_t count,
                    float *scratch, const struct plm_update *update);
  /* Number of scratch floats that muon_step needs for these matrices; reads only their rows and
   * cols. */
  size_t (*muon_scratch)(const struct plm_ops *ops, const struct plm_muon_matrix *matrices,
                         size_t count);
  void (*average_step)(struct plm_ops *ops, float *average, const float *w, size_t n,
                       const struct plm_update *update);

  /* ---- choice of algorithms for products; NULL if the backend does not choose (the CPU) ---- */
  /* Turns tuning on or off; it is off when a backend is opened. If it is on, each new product shape
   * is measured once and keeps the fastest algorithm found; nothing is measured while recording. If
   * it is off, a new shape gets the library's own proposal, which is always the same. so_far
   * receives the totals and may be NULL. */
  void (*tune)(struct plm_ops *ops, bool on, struct plm_ops_tuned *so_far);
  /* Writes the measured algorithms as text: one line that names the library, its version, the card
   * and the precision, then one line for each algorithm. The caller frees *text. */
  plm_status (*export_algorithms)(struct plm_ops *ops, char **text, struct plm_error *error);
  /* Reads algorithms from such a text; their shapes are not measured again. They replace those that
   * the shapes had. Do not call it while there are recordings. Returns PLM_UNSUPPORTED
   * if the text is for another library, card or precision, and PLM_FORMAT if it is malformed.
   * Algorithms read before the error remain in use. */
  plm_status (*import_algorithms)(struct plm_ops *ops, const char *text, struct plm_error *error);

  /* ---- several ranks ---- */
  /* Opens NCCL as the transport between ranks; all ranks call it, and the caller closes it. Any
   * error of opening is the same on all ranks. PLM_CONFIG: NCCL is missing, too old, not the same
   * on all ranks, or two ranks use the same device. NULL if operators' memory is the host's. */
  plm_status (*open_nccl)(struct plm_ops *ops, struct plm_collective *collective,
                          struct plm_transport **transport, struct plm_error *error);
};

/* The name of the precision in which a backend computes: "fp32", "bf16" or "int8". */
static inline const char *plm_ops_precision(const struct plm_ops *ops)
{
  return plm_precision_name(ops->int8                        ? PLM_PRECISION_INT8
                            : ops->act_bytes < sizeof(float) ? PLM_PRECISION_BF16
                                                             : PLM_PRECISION_FP32);
}

struct plm_cpu_request {
  enum plm_precision precision; /* auto: bf16 if that is faster than fp32 here, else fp32 */
  enum plm_bf16_products bf16;
  uint32_t threads; /* 0: all processors available */
  const char *isa;  /* "avx512", "avx2" or "portable"; NULL: the best one of the processor */
};

/* Opens the CPU backend (kernels/cpu). Returns PLM_UNSUPPORTED if the processor lacks `isa`, or if
 * `bf16` is native and the processor or the product library has no bf16 instructions, and PLM_LIMIT
 * if `threads` is too large. The caller closes *ops with (*ops)->close. */
plm_status plm_ops_cpu_open_as(const struct plm_cpu_request *request, struct plm_ops **ops,
                               struct plm_error *error);
/* The same with PLM_BF16_AUTO. */
plm_status plm_ops_cpu_open(enum plm_precision precision, uint32_t threads, const char *isa,
                            struct plm_ops **ops, struct plm_error *error);

#endif
