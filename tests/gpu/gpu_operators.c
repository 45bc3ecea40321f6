/* Compares each operator of our own architectures on a device, at the shapes of the models, with
 * the CPU backend (operator_sample.h).
 *
 *   gpu_operators [TOKENS] */
#include <math.h>
#include <string.h>

#include "tests/support/operators/operator_sample.h"
#include "tests/support/operators/tensor_sum.h"

/* The sizes of all samples, named as in ops.h. */
static int64_t N, D, F, B, L, H, K;
enum { V = SAMPLE_V, LEVEL = 2 };
static const struct plm_interval_mask *masks; /* on the two sides */
static struct plm_attention_shape shape;

/* ---- the calls; b holds the operands in their order ---- */

CALL(round_weights)
{
  ops->round_weights(ops, b[0], b[1], (size_t)(N * D));
}

CALL(linear_forward)
{
  ops->linear_forward(ops, b[0], b[1], b[2], b[3], N, D, F);
}

CALL(linear_backward_input)
{
  ops->linear_backward_input(ops, b[0], b[1], b[2], N, D, F, true);
}

CALL(linear_relu2_forward)
{
  ops->linear_relu2_forward(ops, b[0], b[1], b[2], N, D, F);
}

/* each side takes its own hidden values */
CALL(linear_relu2_backward_input)
{
  ops->linear_relu2_forward(ops, b[1], b[2], b[3], N, D, F);
  ops->linear_relu2_backward_input(ops, b[0], b[4], b[5], b[1], N, F, D);
}

CALL(linear_backward_weight)
{
  ops->linear_backward_weight(ops, b[0], b[1], b[2], N, D, F);
}

CALL(norm_forward)
{
  ops->norm_forward(ops, b[0], b[1], N, D);
}

CALL(norm_backward)
{
  ops->norm_backward(ops, b[0], b[1], b[2], N, D);
}

CALL(mix_norm_forward)
{
  const struct plm_mix mix = {.x = b[2], .p = b[3], .b = b[4]};
  ops->mix_norm_forward(ops, b[0], b[1], &mix, N, D);
}

CALL(mix_norm_backward)
{
  const struct plm_mix mix = {.x = b[5], .p = b[6], .b = b[7]};
  const struct plm_mix_gradients to = {.dx = b[0], .dp = b[1], .db = b[2]};
  ops->mix_norm_backward(ops, &to, b[3], b[4], &mix, N, D);
}

CALL(table_mix_norm_forward)
{
  const struct plm_mix mix = {.x = b[2], .p = b[3], .b = b[4], .p_rows = b[5]};
  ops->mix_norm_forward(ops, b[0], b[1], &mix, N, D);
}

CALL(table_mix_norm_backward)
{
  const struct plm_mix mix = {.x = b[5], .p = b[6], .b = b[7], .p_rows = b[8]};
  const struct plm_mix_gradients to = {.dx = b[0], .dp = b[1], .db = b[2]};
  ops->mix_norm_backward(ops, &to, b[3], b[4], &mix, N, D);
}

CALL(skip_mix_norm_forward)
{
  const struct plm_mix mix = {.x = b[2], .p = b[3], .b = b[4], .skip = b[5], .s = b[6]};
  ops->mix_norm_forward(ops, b[0], b[1], &mix, N, D);
}

CALL(skip_mix_norm_backward)
{
  const struct plm_mix mix = {.x = b[5], .p = b[6], .b = b[7], .skip = b[8], .s = b[9]};
  const struct plm_mix_gradients to = {
      .dx = b[0], .dp = b[1], .db = b[2], .dskip = b[5], .ds = b[10], .more = b[11]};
  ops->mix_norm_backward(ops, &to, b[3], b[4], &mix, N, D);
}

CALL(token_mean_forward)
{
  ops->token_mean_forward(ops, b[0], b[1], b[2], N >> LEVEL, D, V, LEVEL);
}

CALL(token_mean_backward)
{
  ops->token_mean_backward(ops, b[0], b[1], b[2], N, D, V, 0);
}

/* of the operands qkv, vi, a, cosine and sine */
static struct plm_qkv raw_qkv(void **b)
{
  return (struct plm_qkv){.qkv = b[0],
                          .vi = b[1],
                          .a = b[2],
                          .cosine = b[3],
                          .sine = b[4],
                          .B = B,
                          .L = L,
                          .H = H,
                          .K = K};
}

CALL(qkv_prepare_forward)
{
  const struct plm_qkv in = raw_qkv(b + 1);
  ops->qkv_prepare_forward(ops, b[0], &in);
}

CALL(qkv_prepare_backward)
{
  const struct plm_qkv in = raw_qkv(b + 4);
  ops->qkv_prepare_backward(ops, b[0], b[1], b[2], b[3], &in);
}

static size_t part(const struct plm_ops *ops)
{
  return (size_t)(H * K) * ops->act_bytes;
}

CALL(attention_forward)
{
  const struct plm_attention_inputs in = plm_attention_inputs_of(b[2], part(ops));
  ops->attention_forward(ops, b[0], b[1], &in, &masks[side], &shape);
}

/* Runs the forward pass first, since the backward pass reads its out and lse. */
CALL(attention_backward)
{
  const struct plm_attention_inputs in = plm_attention_inputs_of(b[4], part(ops));
  const struct plm_attention_gradients to = plm_attention_gradients_of(b[0], part(ops));
  ops->attention_forward(ops, b[1], b[2], &in, &masks[side], &shape);
  ops->attention_backward(ops, &to, b[3], b[1], b[2], &in, &masks[side], &shape);
}

CALL(gelu_forward)
{
  ops->gelu_forward(ops, b[0], b[1], N * D);
}

CALL(add)
{
  ops->add(ops, b[0], b[1], N * D);
}

CALL(gather_rows)
{
  ops->gather_rows(ops, b[0], b[1], b[2], N / 4, D);
}

CALL(scatter_rows)
{
  ops->scatter_rows(ops, b[0], b[1], b[2], N / 4, D);
}

CALL(logits_forward)
{
  ops->logits_forward(ops, b[0], b[1], b[2], b[3], N, D, V);
}

static const struct plm_loss_options options = {
    .soft_cap = 16, .label_smoothing = 0.1f, .z_loss = 1e-3f};

CALL(cross_entropy)
{
  ops->soft_cap_forward(ops, b[1], N * V, options.soft_cap);
  ops->cross_entropy(ops, b[0], b[1], b[2], b[3], &options, N, V);
}

CALL(head_train)
{
  const struct plm_head_rows rows = {.dense = b[4],
                                     .w = b[5],
                                     .bias = b[6],
                                     .labels = b[7],
                                     .weights = b[8],
                                     .N = N,
                                     .D = D,
                                     .V = V};
  ops->head_train(ops, b[0], b[1], b[2], b[3], &rows, 0.5f, &options);
}

/* ---- the samples ---- */

/* Filled at run time, since counts depend on the sizes above. */
static size_t fill(struct sample samples[SAMPLES_MAX], const struct sample_sizes *sizes)
{
  N = sizes->N, D = sizes->D, F = sizes->F, B = sizes->B, L = sizes->L, H = sizes->H, K = sizes->K;
  masks = sizes->masks;
  shape = (struct plm_attention_shape){.B = (int32_t)B,
                                       .L = (int32_t)L,
                                       .H = (int32_t)H,
                                       .K = (int32_t)K,
                                       .row_stride = (int32_t)(3 * H * K),
                                       .scale = 1 / sqrtf((float)K)};
  const int64_t x = N * D, wide = N * F, qkv = 3 * x, table = V * D;
  const struct sample all[] = {
      SAMPLE(round_weights, 1e-9, 4e-3, {ACT, OUT, x}, {FLOAT, IN, x}),
      SAMPLE(linear_forward, 3e-6, 4e-3, {ACT, OUT, wide}, {ACT, IN, x}, {ACT, IN, D * F},
             {ACT, IN, wide}),
      SAMPLE(linear_backward_input, 3e-6, 4e-3, {ACT, BOTH, x}, {ACT, IN, wide}, {ACT, IN, D * F}),
      SAMPLE(linear_relu2_forward, 3e-6, 8e-3, {ACT, OUT, wide}, {ACT, IN, x}, {ACT, IN, D * F}),
      SAMPLE(linear_relu2_backward_input, 5e-6, 1e-2, {ACT, OUT, wide}, {ACT, OUT, wide},
             {ACT, IN, x}, {ACT, IN, D * F}, {ACT, IN, x}, {ACT, IN, D * F}),
      SAMPLE(linear_backward_weight, 1e-5, tensor_sum_error(N), {FLOAT, BOTH, D * F},
             {ACT, IN, wide}, {ACT, IN, x}),
      SAMPLE(norm_forward, 1e-6, 4e-3, {ACT, OUT, x}, {ACT, IN, x}),
      SAMPLE(norm_backward, 1e-6, 4e-3, {ACT, BOTH, x}, {ACT, IN, x}, {ACT, IN, x}),
      SAMPLE(mix_norm_forward, 1e-6, 4e-3, {ACT, OUT, x}, {ACT, OUT, x}, {ACT, IN, x}, {ACT, IN, x},
             {FLOAT, IN, 2}),
      /* two sums over all elements, which are near zero; the first input is undefined afterwards */
      SAMPLE(mix_norm_backward, 1e-4, 2e-2, {ACT, OUT, x}, {ACT, BOTH, x}, {FLOAT, BOTH, 2},
             {ACT, IN, x}, {ACT, IN, x}, {ACT, IN, x}, {ACT, IN, x}, {FLOAT, IN, 2}),
      NAMED("mix_norm_forward, p from a table", table_mix_norm_forward, 1e-6, 4e-3, {ACT, OUT, x},
            {ACT, OUT, x}, {ACT, IN, x}, {ACT, IN, table}, {FLOAT, IN, 2}, {TOKENS, IN, N}),
      NAMED("mix_norm_backward, p from a table", table_mix_norm_backward, 1e-4, 2e-2, {ACT, OUT, x},
            {ACT, BOTH, x}, {FLOAT, BOTH, 2}, {ACT, IN, x}, {ACT, IN, x}, {ACT, IN, x},
            {ACT, IN, table}, {FLOAT, IN, 2}, {TOKENS, IN, N}),
      NAMED("mix_norm_forward, skip", skip_mix_norm_forward, 1e-6, 4e-3, {ACT, OUT, x},
            {ACT, OUT, x}, {ACT, IN, x}, {ACT, IN, x}, {FLOAT, IN, 2}, {ACT, IN, x},
            {FLOAT, IN, 1}),
      /* the input that is also an output is dskip as well, as in the model */
      NAMED("mix_norm_backward, skip", skip_mix_norm_backward, 1e-4, 2e-2, {ACT, OUT, x},
            {ACT, BOTH, x}, {FLOAT, BOTH, 2}, {ACT, IN, x}, {ACT, IN, x}, {ACT, BOTH, x},
            {ACT, IN, x}, {FLOAT, IN, 2}, {ACT, IN, x}, {FLOAT, IN, 1}, {FLOAT, BOTH, 1},
            {ACT, IN, x}),
      SAMPLE(token_mean_forward, 1e-6, 4e-3, {ACT, OUT, x >> LEVEL}, {FLOAT, IN, table},
             {TOKENS, IN, N}),
      SAMPLE(token_mean_backward, 1e-5, 1e-5, {FLOAT, BOTH, table}, {ACT, IN, x}, {TOKENS, IN, N}),
      SAMPLE(qkv_prepare_forward, 1e-6, 4e-3, {ACT, OUT, qkv}, {ACT, IN, qkv}, {ACT, IN, x},
             {FLOAT, IN, 2}, {FLOAT, IN, L * K / 2}, {FLOAT, IN, L * K / 2}),
      SAMPLE(qkv_prepare_backward, 1e-4, 2e-2, {ACT, OUT, qkv}, {ACT, OUT, x}, {FLOAT, BOTH, 2},
             {ACT, IN, qkv}, {ACT, IN, qkv}, {ACT, IN, x}, {FLOAT, IN, 2}, {FLOAT, IN, L * K / 2},
             {FLOAT, IN, L * K / 2}),
      SAMPLE(attention_forward, 3e-6, 6e-3, {ACT, OUT, x}, {FLOAT, OUT, N * H}, {ACT, IN, qkv}),
      SAMPLE(attention_backward, 5e-6, 1.5e-2, {ACT, OUT, qkv}, {ACT, OUT, x}, {FLOAT, OUT, N * H},
             {ACT, IN, x}, {ACT, IN, qkv}),
      SAMPLE(gelu_forward, 1e-6, 4e-3, {ACT, OUT, x}, {ACT, IN, x}),
      SAMPLE(add, 1e-6, 4e-3, {ACT, BOTH, x}, {ACT, IN, x}),
      SAMPLE(gather_rows, 1e-9, 1e-9, {ACT, OUT, x / 4}, {ACT, IN, x}, {ROWS, IN, N / 4}),
      SAMPLE(scatter_rows, 1e-6, 4e-3, {ACT, BOTH, x}, {ACT, IN, x / 4}, {ROWS, IN, N / 4}),
      SAMPLE(logits_forward, 3e-6, 3e-6, {FLOAT, OUT, N * V}, {ACT, IN, x}, {ACT, IN, table},
             {FLOAT, IN, V}),
      NAMED("soft cap, cross_entropy", cross_entropy, 3e-6, 3e-6, {FLOAT, OUT, N},
            {FLOAT, BOTH, N * V}, {LABELS, IN, N}, {FLOAT, IN, N}),
      SAMPLE(head_train, 1e-5, 2e-2, {FLOAT, OUT, N}, {ACT, OUT, x}, {FLOAT, BOTH, table},
             {FLOAT, BOTH, V}, {ACT, IN, x}, {DECODER, IN, table}, {FLOAT, IN, V}, {LABELS, IN, N},
             {FLOAT, IN, N}),
  };
  memcpy(samples, all, sizeof all);
  return sizeof all / sizeof *all;
}

int main(int argc, char **argv)
{
  return operator_samples_run(argc, argv, fill);
}
