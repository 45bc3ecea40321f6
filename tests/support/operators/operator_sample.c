/* Samples of operators on a device beside the CPU backend. */
#include "tests/support/operators/operator_sample.h"

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

/* Whether an operand is activations. */
static bool is_act(const struct operand *o)
{
  return o->kind == ACT || o->kind == DECODER;
}

static float rounded(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Draws the values of an operand on the host: floats, or int32. */
static void *draw(const struct sample_sizes *sizes, const struct operand *o, uint64_t seed,
                  bool in_bf16)
{
  float *values = must(malloc((size_t)o->count * sizeof *values));
  int32_t *integers = (int32_t *)(void *)values;
  for (int64_t i = 0; i < o->count; i++) {
    const struct plm_philox_words w = plm_philox(seed, (uint32_t)i, 0, 96);
    const double r = sqrt(-2 * log(plm_philox_unit(w.w[0]) + 0x1p-25));
    const double size = o->kind == DECODER ? 1 / sqrt((double)sizes->D) : 1;
    const float normal = (float)(size * r * cos(6.283185307179586 * plm_philox_unit(w.w[1])));
    if (o->kind == ROWS)
      integers[i] = (int32_t)(4 * i + w.w[0] % 4); /* distinct */
    else if (o->kind == TOKENS || o->kind == LABELS)
      integers[i] = (int32_t)(w.w[0] % SAMPLE_V);
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
  float *values = must(calloc((size_t)o->count + 1, sizeof *values));
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

static double compare(const struct sample_sizes *sizes, const struct sample *s,
                      struct plm_ops *const sides[2], uint64_t seed)
{
  void *buffers[2][SAMPLE_OPERANDS] = {0};
  double worst = 0;
  for (int i = 0; i < SAMPLE_OPERANDS && s->operands[i].kind != NONE; i++) {
    const struct operand *o = &s->operands[i];
    void *values = draw(sizes, o, seed + (uint64_t)i, sides[1]->act_bytes == 2);
    if (o->use == OUT)
      memset(values, 0xff, (size_t)o->count * 4); /* NaN, so that unwritten elements show */
    for (int side = 0; side < 2; side++) buffers[side][i] = put(sides[side], o, values);
    free(values);
  }
  for (int side = 0; side < 2; side++) s->call(sides[side], buffers[side], side);
  for (int i = 0; i < SAMPLE_OPERANDS && s->operands[i].kind != NONE; i++) {
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
static void build_masks(struct sample_sizes *sizes, struct plm_ops *const sides[2],
                        void *buffers[2])
{
  const int64_t N = sizes->N, B = sizes->B, L = sizes->L;
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
    (void)plm_mask_build(&batch, 0, PLM_ATTENTION_DOCUMENT, 1, 0, values, buffer,
                         &sizes->masks[side]);
    sides[side]->upload(sides[side], buffer, values, bytes);
    buffers[side] = buffer;
  }
  free(values);
  free(documents);
  free(begins);
}

static int compare_all(struct sample_sizes *sizes, sample_fill *fill, int precision)
{
  static struct sample samples[SAMPLES_MAX];
  struct plm_ops *sides[2] = {NULL, device_case_open(precision, 1)};
  struct plm_error error = {0};
  void *mask_buffers[2];
  int wrong = 0;
  if (plm_ops_cpu_open(PLM_PRECISION_FP32, 0, NULL, &sides[0], &error) != PLM_OK) exit(1);
  build_masks(sizes, sides, mask_buffers);
  const size_t count = fill(samples, sizes);
  for (size_t i = 0; i < count; i++) {
    const bool in_bf16 = precision == PLM_PRECISION_BF16;
    double allowed = in_bf16 ? samples[i].allowed_bf16 : samples[i].allowed_fp32;
    const double worst = compare(sizes, &samples[i], sides, 100 * i + 1);
    const bool good = worst <= allowed;
    printf("%s\tN %lld, D %lld, F %lld, %lld x %lld\t%s\t%.2g\t%.2g\t%s\n", samples[i].name,
           (long long)sizes->N, (long long)sizes->D, (long long)sizes->F, (long long)sizes->H,
           (long long)sizes->K, in_bf16 ? "bf16" : "fp32", worst, allowed, good ? "good" : "WRONG");
    (void)fflush(stdout);
    wrong += !good;
  }
  for (int side = 0; side < 2; side++) {
    sides[side]->release(sides[side], mask_buffers[side]);
    sides[side]->close(sides[side]);
  }
  return wrong;
}

int operator_samples_run(int argc, char **argv, sample_fill *fill)
{
  static struct sample_sizes sizes;
  sizes.N = argc > 1 ? atoll(argv[1]) : 8192;
  const bool small = sizes.N < 1024;
  sizes.L = small ? sizes.N / 2 : 1024;
  sizes.B = sizes.N / sizes.L;
  int wrong = 0;
  for (int heads = 6; heads <= 12; heads += 6) { /* the heads of unet and of patch_unet */
    sizes.D = small ? 32 : 768;
    sizes.F = small ? 64 : 2048;
    sizes.H = small ? 12 / heads : heads;
    sizes.K = sizes.D / sizes.H;
    wrong += compare_all(&sizes, fill, PLM_PRECISION_FP32);
    wrong += compare_all(&sizes, fill, PLM_PRECISION_BF16);
  }
  return wrong > 0;
}
