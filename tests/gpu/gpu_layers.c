/* Compares the operators that only the architectures of published weights use on a device, at the
 * shapes of the models, with the CPU backend (operator_sample.h).
 *
 *   gpu_layers [TOKENS] */
#include <string.h>

#include "tests/support/operators/operator_sample.h"
#include "tests/support/operators/tensor_sum.h"

static const struct sample_sizes *sizes;
static const float eps = 1e-5F;
enum { MASK_TOKEN = 5 }; /* one of those that are drawn */

/* ---- the calls; b holds the operands in their order ---- */

CALL(layer_norm_forward)
{
  const struct plm_layer_norm norm = {.weight = b[2], .bias = b[3], .eps = eps};
  ops->layer_norm_forward(ops, b[0], b[1], &norm, sizes->N, sizes->D);
}

CALL(layer_norm_backward)
{
  const struct plm_layer_norm norm = {.weight = b[5], .bias = b[6], .eps = eps};
  const struct plm_layer_norm_gradients to = {.dweight = b[1], .dbias = b[2]};
  ops->layer_norm_backward(ops, b[0], &to, b[3], b[4], &norm, sizes->N, sizes->D);
}

CALL(plain_layer_norm_forward)
{
  const struct plm_layer_norm norm = {.weight = b[2], .eps = eps};
  ops->layer_norm_forward(ops, b[0], b[1], &norm, sizes->N, sizes->D);
}

CALL(plain_layer_norm_backward)
{
  const struct plm_layer_norm norm = {.weight = b[4], .eps = eps};
  const struct plm_layer_norm_gradients to = {.dweight = b[1]};
  ops->layer_norm_backward(ops, b[0], &to, b[2], b[3], &norm, sizes->N, sizes->D);
}

CALL(linear_bias_forward)
{
  const struct plm_biased_linear layer = {.w = b[2], .bias = b[3]};
  ops->linear_bias_forward(ops, b[0], b[1], &layer, b[4], sizes->N, sizes->D, sizes->F);
}

CALL(linear_bias_gelu_forward)
{
  const struct plm_biased_linear layer = {.w = b[3], .bias = b[4]};
  ops->linear_bias_gelu_forward(ops, b[0], b[1], b[2], &layer, sizes->N, sizes->D, sizes->F);
}

CALL(linear_gelu_backward_input)
{
  ops->linear_gelu_backward_input(ops, b[0], b[1], b[2], b[3], sizes->N, sizes->F, sizes->D);
}

CALL(linear_bias_backward_weight)
{
  ops->linear_bias_backward_weight(ops, b[0], b[1], b[2], b[3], sizes->N, sizes->D, sizes->F);
}

CALL(gelu_backward)
{
  ops->gelu_backward(ops, b[0], b[1], b[2], sizes->N * sizes->F);
}

CALL(swiglu_forward)
{
  ops->swiglu_forward(ops, b[0], b[1], sizes->N, sizes->F);
}

CALL(swiglu_backward)
{
  ops->swiglu_backward(ops, b[0], b[1], b[2], sizes->N, sizes->F);
}

/* of the operands qkv, cosine and sine, and with the norm over the width its weights */
static struct plm_qkv qkv_of(void **b, enum plm_qk_norm norm)
{
  struct plm_qkv in = {.qkv = b[0],
                       .cosine = b[1],
                       .sine = b[2],
                       .B = sizes->B,
                       .L = sizes->L,
                       .H = sizes->H,
                       .K = sizes->K,
                       .norm = norm};
  if (norm != PLM_QK_NORM_WIDTH) return in;
  in.eps = eps;
  in.q_weight = b[3];
  in.k_weight = b[4];
  return in;
}

CALL(width_qkv_prepare_forward)
{
  const struct plm_qkv in = qkv_of(b + 1, PLM_QK_NORM_WIDTH);
  ops->qkv_prepare_forward(ops, b[0], &in);
}

CALL(width_qkv_prepare_backward)
{
  struct plm_qkv in = qkv_of(b + 4, PLM_QK_NORM_WIDTH);
  in.dq_weight = b[1];
  in.dk_weight = b[2];
  ops->qkv_prepare_backward(ops, b[0], NULL, NULL, b[3], &in);
}

CALL(rotary_qkv_prepare_forward)
{
  const struct plm_qkv in = qkv_of(b + 1, PLM_QK_NORM_NONE);
  ops->qkv_prepare_forward(ops, b[0], &in);
}

CALL(rotary_qkv_prepare_backward)
{
  const struct plm_qkv in = qkv_of(b + 2, PLM_QK_NORM_NONE);
  ops->qkv_prepare_backward(ops, b[0], NULL, NULL, b[1], &in);
}

CALL(scale)
{
  ops->scale(ops, b[0], 0.7F, sizes->N * sizes->D);
}

CALL(scale_rows)
{
  ops->scale_rows(ops, b[0], b[1], sizes->N, sizes->D);
}

CALL(token_dropout)
{
  const struct plm_token_dropout of = {.tokens = b[1],
                                       .begin = sizes->masks[side].key_begin,
                                       .end = sizes->masks[side].key_end,
                                       .B = sizes->B,
                                       .L = sizes->L,
                                       .mask_token = MASK_TOKEN};
  ops->token_dropout(ops, b[0], &of);
}

/* ---- the samples ---- */

/* Filled at run time, since counts depend on the sizes. */
static size_t fill(struct sample samples[SAMPLES_MAX], const struct sample_sizes *of)
{
  sizes = of;
  const int64_t N = of->N, D = of->D, F = of->F, x = N * D, wide = N * F, qkv = 3 * x;
  const int64_t angles = of->L * of->K / 2;
  const struct sample all[] = {
      SAMPLE(layer_norm_forward, 2e-6, 4e-3, {ACT, OUT, x}, {ACT, IN, x}, {FLOAT, IN, D},
             {FLOAT, IN, D}),
      SAMPLE(layer_norm_backward, 1e-5, 4e-3, {ACT, BOTH, x}, {FLOAT, BOTH, D}, {FLOAT, BOTH, D},
             {ACT, IN, x}, {ACT, IN, x}, {FLOAT, IN, D}, {FLOAT, IN, D}),
      NAMED("layer_norm_forward, no bias", plain_layer_norm_forward, 2e-6, 4e-3, {ACT, OUT, x},
            {ACT, IN, x}, {FLOAT, IN, D}),
      NAMED("layer_norm_backward, no bias", plain_layer_norm_backward, 1e-5, 4e-3, {ACT, BOTH, x},
            {FLOAT, BOTH, D}, {ACT, IN, x}, {ACT, IN, x}, {FLOAT, IN, D}),
      SAMPLE(linear_bias_forward, 3e-6, 8e-3, {ACT, OUT, wide}, {ACT, IN, x}, {ACT, IN, D * F},
             {FLOAT, IN, F}, {ACT, IN, wide}),
      SAMPLE(linear_bias_gelu_forward, 3e-6, 8e-3, {ACT, OUT, wide}, {ACT, OUT, wide}, {ACT, IN, x},
             {ACT, IN, D * F}, {FLOAT, IN, F}),
      SAMPLE(linear_gelu_backward_input, 5e-6, 1e-2, {ACT, OUT, wide}, {ACT, IN, x},
             {ACT, IN, D * F}, {ACT, IN, wide}),
      SAMPLE(linear_bias_backward_weight, 1e-5, tensor_sum_error(N), {FLOAT, BOTH, D * F},
             {FLOAT, BOTH, F}, {ACT, IN, wide}, {ACT, IN, x}),
      SAMPLE(gelu_backward, 2e-6, 4e-3, {ACT, OUT, wide}, {ACT, IN, wide}, {ACT, IN, wide}),
      SAMPLE(swiglu_forward, 2e-6, 4e-3, {ACT, OUT, wide}, {ACT, IN, 2 * wide}),
      SAMPLE(swiglu_backward, 2e-6, 4e-3, {ACT, OUT, 2 * wide}, {ACT, IN, wide},
             {ACT, IN, 2 * wide}),
      NAMED("qkv_prepare_forward, norm over the width", width_qkv_prepare_forward, 2e-6, 4e-3,
            {ACT, OUT, qkv}, {ACT, IN, qkv}, {FLOAT, IN, angles}, {FLOAT, IN, angles},
            {FLOAT, IN, D}, {FLOAT, IN, D}),
      NAMED("qkv_prepare_backward, norm over the width", width_qkv_prepare_backward, 1e-5, 4e-3,
            {ACT, OUT, qkv}, {FLOAT, BOTH, D}, {FLOAT, BOTH, D}, {ACT, IN, qkv}, {ACT, IN, qkv},
            {FLOAT, IN, angles}, {FLOAT, IN, angles}, {FLOAT, IN, D}, {FLOAT, IN, D}),
      NAMED("qkv_prepare_forward, no norm", rotary_qkv_prepare_forward, 1e-6, 4e-3, {ACT, OUT, qkv},
            {ACT, IN, qkv}, {FLOAT, IN, angles}, {FLOAT, IN, angles}),
      NAMED("qkv_prepare_backward, no norm", rotary_qkv_prepare_backward, 1e-6, 4e-3,
            {ACT, OUT, qkv}, {ACT, IN, qkv}, {ACT, IN, qkv}, {FLOAT, IN, angles},
            {FLOAT, IN, angles}),
      SAMPLE(scale, 1e-6, 4e-3, {ACT, BOTH, x}),
      SAMPLE(scale_rows, 1e-6, 4e-3, {ACT, BOTH, x}, {FLOAT, IN, N}),
      SAMPLE(token_dropout, 1e-6, 1e-6, {FLOAT, OUT, N}, {TOKENS, IN, N}),
  };
  memcpy(samples, all, sizeof all);
  return sizeof all / sizeof *all;
}

int main(int argc, char **argv)
{
  return operator_samples_run(argc, argv, fill);
}
