/* tool_rounding BACKEND OPERATOR SIZES: runs one operator in bf16 on operands from standard input
 * and writes its results to standard output. test_rounding.py compares them with PyTorch's.
 *
 * BACKEND is cpu or cuda (emulated, or a GPU: device_case.h). Operands and results are raw bf16,
 * parameters and their gradients fp32, in the order in which the operators below take and give
 * them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/cli/program.h"
#include "common/model/masks.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"

static struct plm_ops *ops;
static int64_t size[4];
static void *buffers[32]; /* released at the end */
static size_t buffer_count;

static void *allocated(size_t bytes)
{
  void *device;
  PLM_ASSERT(ops->allocate(ops, bytes, &device, NULL) == PLM_OK);
  PLM_ASSERT(buffer_count < sizeof buffers / sizeof *buffers);
  return buffers[buffer_count++] = device;
}

static void *taken(size_t bytes)
{
  void *host = must(malloc(bytes)), *device = allocated(bytes);
  if (fread(host, 1, bytes, stdin) != bytes) {
    fprintf(stderr, "tool_rounding: standard input ends too early\n");
    exit(2);
  }
  ops->upload(ops, device, host, bytes);
  PLM_ASSERT(ops->synchronize(ops, NULL) == PLM_OK);
  free(host);
  return device;
}

static act *allocate_act(int64_t n)
{
  return taken((size_t)n * 2);
}
static float *allocate_floats(int64_t n)
{
  return taken((size_t)n * 4);
}
static void *fresh(int64_t bytes)
{
  void *device = allocated((size_t)bytes);
  ops->zero(ops, device, (size_t)bytes);
  return device;
}

static void give(const void *device, int64_t bytes)
{
  char *host = must(malloc((size_t)bytes));
  ops->download(ops, host, device, (size_t)bytes);
  PLM_ASSERT(ops->synchronize(ops, NULL) == PLM_OK);
  if (fwrite(host, 1, (size_t)bytes, stdout) != (size_t)bytes) exit(2);
  free(host);
}

/* N D: x, dh -> norm(x), its gradient */
static void norm(void)
{
  const int64_t N = size[0], D = size[1], n = N * D;
  const act *x = allocate_act(n), *dh = allocate_act(n);
  act *out = fresh(2 * n), *dx = fresh(2 * n);
  ops->norm_forward(ops, out, x, N, D);
  ops->norm_backward(ops, dx, dh, x, N, D);
  give(out, 2 * n);
  give(dx, 2 * n);
}

/* N D: x, p, b, skip, s, dmixed -> mixed, its norm, and dx, dp, db, dskip, ds with no gradient
 * through the norm */
static void mix(void)
{
  const int64_t N = size[0], D = size[1], n = N * D;
  const act *x = allocate_act(n), *p = allocate_act(n);
  const float *b = allocate_floats(2);
  const act *kept = allocate_act(n);
  const float *s = allocate_floats(1);
  act *dmixed = allocate_act(n), *mixed = fresh(2 * n), *h = fresh(2 * n);
  const struct plm_mix in = {x, p, b, kept, s, NULL};
  const struct plm_mix_gradients to = {dmixed,       fresh(2 * n), fresh(8),
                                       fresh(2 * n), fresh(4),     NULL};
  ops->mix_norm_forward(ops, mixed, h, &in, N, D);
  ops->mix_norm_backward(ops, &to, dmixed, fresh(2 * n), &in, N, D);
  give(mixed, 2 * n);
  give(h, 2 * n);
  give(to.dx, 2 * n);
  give(to.dp, 2 * n);
  give(to.db, 8);
  give(to.dskip, 2 * n);
  give(to.ds, 4);
}

/* N I O: x, w, residual, dy -> y, dx, dw */
static void linear(void)
{
  const int64_t N = size[0], I = size[1], O = size[2];
  const act *x = allocate_act(N * I), *w = allocate_act(O * I);
  const act *residual = allocate_act(N * O), *dy = allocate_act(N * O);
  act *y = fresh(2 * N * O), *dx = fresh(2 * N * I);
  float *dw = fresh(4 * O * I);
  ops->linear_forward(ops, y, x, w, residual, N, I, O);
  ops->linear_backward_input(ops, dx, dy, w, N, I, O, false);
  ops->linear_backward_weight(ops, dw, dy, x, N, I, O);
  give(y, 2 * N * O);
  give(dx, 2 * N * I);
  give(dw, 4 * O * I);
}

/* N I O: x, w (O, I), v (I, O), dy (N, I) -> hidden = relu(x w^T)^2, gradient of x w^T */
static void mlp(void)
{
  const int64_t N = size[0], I = size[1], O = size[2];
  const act *x = allocate_act(N * I), *w = allocate_act(O * I), *v = allocate_act(I * O);
  const act *dy = allocate_act(N * I);
  act *hidden = fresh(2 * N * O), *dup = fresh(2 * N * O);
  ops->linear_relu2_forward(ops, hidden, x, w, N, I, O);
  ops->linear_relu2_backward_input(ops, dup, dy, v, hidden, N, O, I);
  give(hidden, 2 * N * O);
  give(dup, 2 * N * O);
}

static const float layer_norm_eps = 1e-5f;

/* N D BIAS: x, weight, bias if BIAS, dx, dh -> LayerNorm of x; the gradient of x, whose dx comes
 * through the residual connection; dweight, and dbias if BIAS */
static void layer_norm(void)
{
  const int64_t N = size[0], D = size[1], n = N * D;
  const bool biased = size[2] != 0;
  const act *x = allocate_act(n);
  struct plm_layer_norm of = {.weight = allocate_floats(D), .eps = layer_norm_eps};
  if (biased) of.bias = allocate_floats(D);
  act *dx = allocate_act(n), *out = fresh(2 * n);
  const act *dh = allocate_act(n);
  const struct plm_layer_norm_gradients to = {fresh(4 * D), fresh(4 * D)};
  ops->layer_norm_forward(ops, out, x, &of, N, D);
  ops->layer_norm_backward(ops, dx, &to, dh, x, &of, N, D);
  give(out, 2 * n);
  give(dx, 2 * n);
  give(to.dweight, 4 * D);
  if (biased) give(to.dbias, 4 * D);
}

/* N I O: x, w, bias, residual, dy -> y, dx, dw, dbias */
static void linear_bias(void)
{
  const int64_t N = size[0], I = size[1], O = size[2];
  const act *x = allocate_act(N * I), *w = allocate_act(O * I);
  const struct plm_biased_linear layer = {.w = w, .bias = allocate_floats(O)};
  const act *residual = allocate_act(N * O), *dy = allocate_act(N * O);
  act *y = fresh(2 * N * O), *dx = fresh(2 * N * I);
  float *dw = fresh(4 * O * I), *dbias = fresh(4 * O);
  ops->linear_bias_forward(ops, y, x, &layer, residual, N, I, O);
  ops->linear_backward_input(ops, dx, dy, w, N, I, O, false);
  ops->linear_bias_backward_weight(ops, dw, dbias, dy, x, N, I, O);
  give(y, 2 * N * O);
  give(dx, 2 * N * I);
  give(dw, 4 * O * I);
  give(dbias, 4 * O);
}

/* N I O: x, w (O, I), bias (O), v (I, O), dy (N, I) -> before = x w^T + bias, gelu(before), the
 * gradients of before and of bias */
static void mlp_gelu(void)
{
  const int64_t N = size[0], I = size[1], O = size[2];
  const act *x = allocate_act(N * I), *w = allocate_act(O * I);
  const struct plm_biased_linear layer = {.w = w, .bias = allocate_floats(O)};
  const act *v = allocate_act(I * O), *dy = allocate_act(N * I);
  act *hidden = fresh(2 * N * O), *before = fresh(2 * N * O), *dbefore = fresh(2 * N * O);
  float *dw = fresh(4 * O * I), *dbias = fresh(4 * O);
  ops->linear_bias_gelu_forward(ops, hidden, before, x, &layer, N, I, O);
  ops->linear_gelu_backward_input(ops, dbefore, dy, v, before, N, O, I);
  ops->linear_bias_backward_weight(ops, dw, dbias, dbefore, x, N, I, O);
  give(before, 2 * N * O);
  give(hidden, 2 * N * O);
  give(dbefore, 2 * N * O);
  give(dbias, 4 * O);
}

/* N F: gate and up (N, 2 F), dhidden (N, F) -> hidden = silu(gate) up, gradient of gate and up */
static void swiglu(void)
{
  const int64_t N = size[0], F = size[1];
  const act *gate_up = allocate_act(2 * N * F), *dhidden = allocate_act(N * F);
  act *hidden = fresh(2 * N * F), *dgate_up = fresh(4 * N * F);
  ops->swiglu_forward(ops, hidden, gate_up, N, F);
  ops->swiglu_backward(ops, dgate_up, dhidden, gate_up, N, F);
  give(hidden, 2 * N * F);
  give(dgate_up, 4 * N * F);
}

/* B L H K: qkv, q_weight, k_weight (H K), cosine, sine, dqkv -> prepared with q and k normalised
 * over the width; gradients of qkv and of both weights */
static void qkv_width(void)
{
  const int64_t B = size[0], L = size[1], H = size[2], K = size[3], D = H * K, n = B * L * D;
  struct plm_qkv from = {.qkv = allocate_act(3 * n),
                         .B = B,
                         .L = L,
                         .H = H,
                         .K = K,
                         .norm = PLM_QK_NORM_WIDTH,
                         .eps = layer_norm_eps,
                         .dq_weight = fresh(4 * D),
                         .dk_weight = fresh(4 * D)};
  from.q_weight = allocate_floats(D);
  from.k_weight = allocate_floats(D);
  from.cosine = allocate_floats(L * K / 2);
  from.sine = allocate_floats(L * K / 2);
  const act *dqkv = allocate_act(3 * n);
  act *out = fresh(6 * n), *draw = fresh(6 * n);
  ops->qkv_prepare_forward(ops, out, &from);
  ops->qkv_prepare_backward(ops, draw, NULL, NULL, dqkv, &from);
  give(out, 6 * n);
  give(draw, 6 * n);
  give(from.dq_weight, 4 * D);
  give(from.dk_weight, 4 * D);
}

/* B L H K: qkv, vi, a, cosine, sine, dqkv -> prepared; gradients of qkv, vi, a */
static void qkv(void)
{
  const int64_t B = size[0], L = size[1], H = size[2], K = size[3], n = B * L * H * K;
  const act *in = allocate_act(3 * n), *vi = allocate_act(n);
  const float *a = allocate_floats(2), *cosine = allocate_floats(L * K / 2),
              *sine = allocate_floats(L * K / 2);
  const act *dqkv = allocate_act(3 * n);
  act *out = fresh(6 * n), *draw = fresh(6 * n), *dvi = fresh(2 * n);
  float *da = fresh(8);
  const struct plm_qkv from = {
      .qkv = in, .vi = vi, .a = a, .cosine = cosine, .sine = sine, .B = B, .L = L, .H = H, .K = K};
  ops->qkv_prepare_forward(ops, out, &from);
  ops->qkv_prepare_backward(ops, draw, dvi, da, dqkv, &from);
  give(out, 6 * n);
  give(draw, 6 * n);
  give(dvi, 2 * n);
  give(da, 8);
}

/* B L H K: qkv (side by side), dout -> out, dqkv; each chunk one document */
static void attention(void)
{
  const int64_t B = size[0], L = size[1], H = size[2], K = size[3], n = B * L * H * K;
  uint32_t *begin = must(calloc((size_t)B + 1, sizeof *begin));
  struct plm_chunk_document *documents = must(calloc((size_t)B, sizeof *documents));
  for (int64_t b = 0; b < B; b++) {
    begin[b + 1] = (uint32_t)b + 1;
    documents[b].tokens = (uint32_t)L;
  }
  const struct plm_batch batch = {.chunks = (uint32_t)B,
                                  .max_length = (uint32_t)L,
                                  .document_begin = begin,
                                  .documents = documents};
  const size_t values = plm_mask_values((int32_t)B, (int32_t)L);
  int32_t *host = must(calloc(values, sizeof *host)), *device = fresh((int64_t)values * 4);
  struct plm_interval_mask mask;
  plm_mask_build(&batch, 0, PLM_ATTENTION_DOCUMENT, 1, 1, host, device, &mask);
  ops->upload(ops, device, host, values * sizeof *host);
  const struct plm_attention_shape shape = {.B = (int32_t)B,
                                            .L = (int32_t)L,
                                            .H = (int32_t)H,
                                            .K = (int32_t)K,
                                            .row_stride = (int32_t)(3 * H * K),
                                            .scale = (float)(1 / __builtin_sqrt((double)K))};
  const size_t part = (size_t)(2 * H * K);
  const struct plm_attention_inputs in = plm_attention_inputs_of(allocate_act(3 * n), part);
  const act *dout = allocate_act(n);
  act *out = fresh(2 * n);
  act *din = fresh(6 * n);
  const struct plm_attention_gradients to = plm_attention_gradients_of(din, part);
  float *lse = fresh(4 * B * H * L);
  ops->attention_forward(ops, out, lse, &in, &mask, &shape);
  ops->attention_backward(ops, &to, dout, out, lse, &in, &mask, &shape);
  give(out, 2 * n);
  give(din, 6 * n);
  free(begin);
  free(documents);
  free(host);
}

/* n: x, dy -> gelu, its gradient */
static void activation(void)
{
  const int64_t n = size[0];
  const act *x = allocate_act(n), *dy = allocate_act(n);
  act *out = fresh(2 * n), *dx = fresh(2 * n);
  ops->gelu_forward(ops, out, x, n);
  ops->gelu_backward(ops, dx, dy, x, n);
  give(out, 2 * n);
  give(dx, 2 * n);
}

/* N D V: dense, w, bias, weights; labels 7 i mod V -> logits of dense (fp32); row_loss of the whole
 * head, ddense, dw, dbias */
static void head(void)
{
  const int64_t N = size[0], D = size[1], V = size[2];
  const act *dense = allocate_act(N * D), *w = allocate_act(V * D);
  const float *bias = allocate_floats(V), *weights = allocate_floats(N);
  float *logits = fresh(4 * N * V), *row_loss = fresh(4 * N);
  float *dw = fresh(4 * V * D), *dbias = fresh(4 * V);
  act *ddense = fresh(2 * N * D);
  int32_t *labels = fresh(4 * N), *host = must(malloc((size_t)N * sizeof *host));
  for (int64_t i = 0; i < N; i++) host[i] = (int32_t)(7 * i % V);
  ops->upload(ops, labels, host, (size_t)N * sizeof *host);
  free(host);
  const struct plm_head_rows rows = {.dense = dense,
                                     .w = w,
                                     .bias = bias,
                                     .labels = labels,
                                     .weights = weights,
                                     .N = N,
                                     .D = D,
                                     .V = V};
  const struct plm_loss_options options = {
      .soft_cap = 16, .label_smoothing = 0.1f, .z_loss = 1e-3f};
  ops->logits_forward(ops, logits, dense, w, bias, N, D, V);
  ops->head_train(ops, row_loss, ddense, dw, dbias, &rows, 1, &options);
  give(logits, 4 * N * V);
  give(row_loss, 4 * N);
  give(ddense, 2 * N * D);
  give(dw, 4 * V * D);
  give(dbias, 4 * V);
}

static const struct {
  const char *name;
  int sizes;
  void (*run)(void);
} operators[] = {{"norm", 2, norm},
                 {"mix", 2, mix},
                 {"linear", 3, linear},
                 {"mlp", 3, mlp},
                 {"qkv", 4, qkv},
                 {"attention", 4, attention},
                 {"activation", 1, activation},
                 {"layer_norm", 3, layer_norm},
                 {"linear_bias", 3, linear_bias},
                 {"mlp_gelu", 3, mlp_gelu},
                 {"swiglu", 2, swiglu},
                 {"qkv_width", 4, qkv_width},
                 {"head", 3, head}};

int main(int argc, char **argv)
{
  struct plm_error error = {0};
  plm_program_begin();
  if (argc >= 3 && strcmp(argv[1], "cuda") == 0) {
    ops = device_case_open(PLM_PRECISION_BF16, 1);
  } else if (argc < 3 || plm_ops_cpu_open(PLM_PRECISION_BF16, 1, NULL, &ops, &error) != PLM_OK) {
    plm_error_print("tool_rounding", &error);
    return 2;
  }
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (strcmp(argv[2], operators[i].name) != 0 || argc != 3 + operators[i].sizes) continue;
    for (int s = 0; s < operators[i].sizes; s++) size[s] = strtoll(argv[3 + s], NULL, 10);
    operators[i].run();
    while (buffer_count > 0) ops->release(ops, buffers[--buffer_count]);
    ops->close(ops);
    return 0;
  }
  fprintf(stderr, "tool_rounding: no such operator, or other sizes\n");
  return 2;
}
