/* Compares each operator on a device, at the shapes of the models, with the CPU backend in fp32 on
 * the same inputs (rounded to bf16 for bf16): |difference| / |result| of everything that it writes.
 * Prints a line for each, with tabs: operator, shape, precision, error, allowed error, good or
 * WRONG.
 *
 *   gpu_operators [TOKENS]
 *
 * TOKENS is 8192 if not given; below 1024 the widths are small as well. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/model/masks.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"
#include "tests/support/operators/tensor_sum.h"

/* The sizes of all samples, named as in ops.h. */
static int64_t N, D, F, B, L, H, K;
enum { V = 33, MOST = 12, LEVEL = 2 };
static struct plm_interval_mask masks[2]; /* on the two sides */
static struct plm_attention_shape shape;

enum operand_kind { NONE, ACT, DECODER, FLOAT, TOKENS, LABELS, ROWS };
enum operand_use { IN, OUT, BOTH };
struct operand {
  enum operand_kind kind;
  enum operand_use use;
  int64_t count;
};

/* Whether an operand is activations. A decoder's are so small that logits are of order 1. */
static bool is_act(const struct operand *o)
{
  return o->kind == ACT || o->kind == DECODER;
}

struct sample {
  const char *name;
  void (*call)(struct plm_ops *ops, void **b, int side);
  double allowed_fp32, allowed_bf16;
  struct operand operands[MOST];
};

/* ---- the calls; b holds the operands in their order ---- */
#define CALL(name) static void name(struct plm_ops *ops, void **b, __attribute__((unused)) int side)

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

#define NAMED(name, call, fp32, bf16, ...) \
  {                                        \
    name, call, fp32, bf16,                \
    {                                      \
      __VA_ARGS__                          \
    }                                      \
  }
#define SAMPLE(call, ...) NAMED(#call, call, __VA_ARGS__)

/* Filled at run time, since counts depend on the sizes above. */
static size_t fill(struct sample *s)
{
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
  memcpy(s, all, sizeof all);
  return sizeof all / sizeof *all;
}

/* ---- both sides ---- */

static float rounded(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Draws the values of an operand on the host: floats, or int32. */
static void *draw(const struct operand *o, uint64_t seed, bool in_bf16)
{
  float *values = must(malloc((size_t)o->count * sizeof *values));
  int32_t *integers = (int32_t *)(void *)values;
  for (int64_t i = 0; i < o->count; i++) {
    const struct plm_philox_words w = plm_philox(seed, (uint32_t)i, 0, 96);
    const double r = sqrt(-2 * log(plm_philox_unit(w.w[0]) + 0x1p-25));
    const double size = o->kind == DECODER ? 1 / sqrt((double)D) : 1;
    const float normal = (float)(size * r * cos(6.283185307179586 * plm_philox_unit(w.w[1])));
    if (o->kind == ROWS)
      integers[i] = (int32_t)(4 * i + w.w[0] % 4); /* distinct */
    else if (o->kind == TOKENS || o->kind == LABELS)
      integers[i] = (int32_t)(w.w[0] % V);
    else
      values[i] = in_bf16 && is_act(o) ? rounded(normal) : normal;
  }
  return values;
}

static size_t bytes_of(const struct plm_ops *ops, const struct operand *o)
{
  return (size_t)o->count * (is_act(o) ? ops->act_bytes : 4);
}

static void *put(struct plm_ops *ops, const struct operand *o, const void *host)
{
  if (!is_act(o) || ops->act_bytes == 4) return device_case_upload(ops, host, bytes_of(ops, o));
  uint16_t *rounded_values = must(malloc((size_t)o->count * sizeof *rounded_values));
  for (int64_t i = 0; i < o->count; i++) {
    uint32_t bits;
    memcpy(&bits, (const char *)host + 4 * i, sizeof bits);
    rounded_values[i] = (uint16_t)(bits >> 16);
  }
  void *buffer = device_case_upload(ops, rounded_values, (size_t)o->count * sizeof *rounded_values);
  free(rounded_values);
  return buffer;
}

static float *get(struct plm_ops *ops, const struct operand *o, const void *buffer)
{
  char *raw = must(malloc(bytes_of(ops, o)));
  float *values = must(malloc((size_t)o->count * sizeof *values));
  device_case_download(ops, raw, buffer, bytes_of(ops, o));
  for (int64_t i = 0; i < o->count; i++) {
    uint16_t pattern;
    uint32_t bits;
    if (is_act(o) && ops->act_bytes == 2) {
      memcpy(&pattern, raw + 2 * i, sizeof pattern);
      bits = (uint32_t)pattern << 16;
    } else {
      memcpy(&bits, raw + 4 * i, sizeof bits);
    }
    memcpy(&values[i], &bits, sizeof bits);
  }
  free(raw);
  return values;
}

/* |a - b| / |b|; infinite if either has a value that is not finite, except lse of empty queries. */
static double error_of(const float *a, const float *b, int64_t n)
{
  double difference = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    if (isinf(a[i]) && isinf(b[i])) continue;
    const double x = (double)a[i], y = (double)b[i];
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return isfinite(difference) ? sqrt(difference / (size > 0 ? size : 1)) : INFINITY;
}

static double compare(const struct sample *s, struct plm_ops *const sides[2], uint64_t seed)
{
  void *buffers[2][MOST] = {0};
  double worst = 0;
  for (int i = 0; i < MOST && s->operands[i].kind != NONE; i++) {
    const struct operand *o = &s->operands[i];
    void *values = draw(o, seed + (uint64_t)i, sides[1]->act_bytes == 2);
    if (o->use == OUT)
      memset(values, 0xff, (size_t)o->count * 4); /* NaN, so that unwritten elements show */
    for (int side = 0; side < 2; side++) buffers[side][i] = put(sides[side], o, values);
    free(values);
  }
  for (int side = 0; side < 2; side++) s->call(sides[side], buffers[side], side);
  for (int i = 0; i < MOST && s->operands[i].kind != NONE; i++) {
    const struct operand *o = &s->operands[i];
    if (o->use != IN) {
      float *expected = get(sides[0], o, buffers[0][i]), *got = get(sides[1], o, buffers[1][i]);
      worst = fmax(worst, error_of(got, expected, o->count));
      free(expected);
      free(got);
    }
    for (int side = 0; side < 2; side++) sides[side]->release(sides[side], buffers[side][i]);
  }
  return worst;
}

/* Documents of several lengths with some padding at the end of each chunk, for both sides. */
static void build_masks(struct plm_ops *const sides[2], void *buffers[2])
{
  struct plm_chunk_document *documents = must(calloc((size_t)(N + 1), sizeof *documents));
  uint32_t *begins = must(calloc((size_t)B + 1, sizeof *begins)), count = 0;
  for (int64_t c = 0; c < B; c++) {
    for (uint32_t at = 0, i = 0; at + 3 < L; i++) {
      uint32_t tokens = 1 + plm_philox(3, i, (uint64_t)c, 95).w[0] % (uint32_t)(L / 2);
      if (tokens > L - 3 - at) tokens = (uint32_t)L - 3 - at;
      documents[count++] = (struct plm_chunk_document){.start = at, .tokens = tokens};
      at += tokens;
    }
    begins[c + 1] = count;
  }
  const struct plm_batch batch = {.chunks = (uint32_t)B,
                                  .max_length = (uint32_t)L,
                                  .document_begin = begins,
                                  .documents = documents};
  const size_t bytes = plm_mask_values((int32_t)B, (int32_t)L) * sizeof(int32_t);
  int32_t *values = must(malloc(bytes));
  for (int side = 0; side < 2; side++) {
    void *buffer;
    struct plm_error error = {0};
    if (sides[side]->allocate(sides[side], bytes, &buffer, &error) != PLM_OK) exit(1);
    (void)plm_mask_build(&batch, 0, PLM_ATTENTION_DOCUMENT, 1, 0, values, buffer, &masks[side]);
    sides[side]->upload(sides[side], buffer, values, bytes);
    buffers[side] = buffer;
  }
  free(values);
  free(documents);
  free(begins);
}

static int compare_all(int precision)
{
  static struct sample samples[64];
  struct plm_ops *sides[2] = {NULL, device_case_open(precision, 1)};
  struct plm_error error = {0};
  void *mask_buffers[2];
  int wrong = 0;
  if (plm_ops_cpu_open(PLM_PRECISION_FP32, 0, NULL, &sides[0], &error) != PLM_OK) exit(1);
  build_masks(sides, mask_buffers);
  const size_t count = fill(samples);
  for (size_t i = 0; i < count; i++) {
    const bool in_bf16 = precision == PLM_PRECISION_BF16;
    double allowed = in_bf16 ? samples[i].allowed_bf16 : samples[i].allowed_fp32;
    const double worst = compare(&samples[i], sides, 100 * i + 1);
    const bool good = worst <= allowed;
    printf("%s\tN %lld, D %lld, F %lld, %lld x %lld\t%s\t%.2g\t%.2g\t%s\n", samples[i].name,
           (long long)N, (long long)D, (long long)F, (long long)H, (long long)K,
           in_bf16 ? "bf16" : "fp32", worst, allowed, good ? "good" : "WRONG");
    (void)fflush(stdout);
    wrong += !good;
  }
  for (int side = 0; side < 2; side++) {
    sides[side]->release(sides[side], mask_buffers[side]);
    sides[side]->close(sides[side]);
  }
  return wrong;
}

int main(int argc, char **argv)
{
  N = argc > 1 ? atoll(argv[1]) : 8192;
  const bool small = N < 1024;
  L = small ? N / 2 : 1024;
  B = N / L;
  int wrong = 0;
  for (int heads = 6; heads <= 12; heads += 6) { /* the heads of unet and of patch_unet */
    D = small ? 32 : 768;
    F = small ? 64 : 2048;
    H = small ? 12 / heads : heads;
    K = D / H;
    shape = (struct plm_attention_shape){.B = (int32_t)B,
                                         .L = (int32_t)L,
                                         .H = (int32_t)H,
                                         .K = (int32_t)K,
                                         .row_stride = (int32_t)(3 * H * K),
                                         .scale = 1 / sqrtf((float)K)};
    wrong += compare_all(PLM_PRECISION_FP32) + compare_all(PLM_PRECISION_BF16);
  }
  return wrong > 0;
}
