/* Attention, forward and backward, on packed documents: executed beside allowed area, and the rate
 * of allowed work beside oneDNN's sgemm in the same run.
 *
 *   bench_attention [THREADS [ISA]]
 *
 * Work counts 4 K operations a pair and head forward, 10 K backward (its five products). */
#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/philox.h"
#include "common/model/masks.h"
#include "kernels/cpu/attention.h"
#include "tests/support/bench_scene.h"

enum { CHUNKS = 8, MAX_DOCUMENTS = 8192 };

struct scene {
  const char *name;
  uint32_t length, median; /* tokens of a chunk; of a document, 0: one fills the chunk */
  int32_t heads, K;
  unsigned kinds;
  uint32_t window;
  bool bf16;
};

static const struct scene SCENES[] = {
    {"demo, 2 x 64", 512, 300, 2, 64, PLM_ATTENTION_DOCUMENT, 0, false},
    {"6x384, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT, 0, false},
    {"24x768, 6 x 128", 1024, 300, 6, 128, PLM_ATTENTION_DOCUMENT, 0, false},
    {"12 x 32", 1024, 300, 12, 32, PLM_ATTENTION_DOCUMENT, 0, false},
    {"level 2, 12 x 80", 256, 75, 12, 80, PLM_ATTENTION_DOCUMENT, 0, false},
    {"causal, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL, 0, false},
    {"window 128, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 128,
     false},
    {"one document, 6 x 64", 1024, 0, 6, 64, PLM_ATTENTION_DOCUMENT, 0, false},
    {"6x384, bf16", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT, 0, true},
    {"24x768, bf16", 1024, 300, 6, 128, PLM_ATTENTION_DOCUMENT, 0, true},
};

static double now_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of some runs: other work on the machine only adds. */
#define BEST_OF(seconds, statement)              \
  do {                                           \
    (seconds) = 1e30;                            \
    for (int round_ = 0; round_ < 7; round_++) { \
      const double start_ = now_s();             \
      statement;                                 \
      const double took_ = now_s() - start_;     \
      if (took_ < (seconds)) (seconds) = took_;  \
    }                                            \
  } while (0)

extern void omp_set_num_threads(int threads) __attribute__((weak)); /* oneDNN's runtime */

/* GFLOP/s of oneDNN's fp32 product at 2048^3. */
static double product_rate(uint32_t threads)
{
  const dnnl_dim_t n = 2048;
  const size_t count = (size_t)(n * n);
  float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b),
        *c = malloc(count * sizeof *c);
  if (a == NULL || b == NULL || c == NULL) exit(1);
  for (size_t i = 0; i < count; i++) {
    a[i] = (float)(i % 7) - 3;
    b[i] = (float)(i % 5) - 2;
  }
  double seconds;
  if (omp_set_num_threads != NULL) omp_set_num_threads((int)threads);
  BEST_OF(seconds, dnnl_sgemm('N', 'T', n, n, n, 1, a, n, b, n, 0, c, n));
  free(a);
  free(b);
  free(c);
  return 2e-9 * (double)n * (double)n * (double)n / seconds;
}

static struct plm_chunk_document documents[MAX_DOCUMENTS];
static uint32_t document_begin[CHUNKS + 1];

/* Log-normal lengths, as proteins have, cut where the chunk ends. */
static struct plm_batch pack(const struct scene *scene)
{
  uint32_t count = 0;
  for (uint32_t c = 0; c < CHUNKS; c++) {
    for (uint32_t at = 0; at < scene->length && count < MAX_DOCUMENTS;) {
      const struct plm_philox_words draw = plm_philox(1, count, c, 93);
      const double u = plm_philox_unit(draw.w[0]) + 0x1p-25, v = plm_philox_unit(draw.w[1]);
      const double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
      uint32_t tokens = scene->length - at;
      if (scene->median > 0) {
        const double drawn = scene->median * exp(0.6 * normal) + 2;
        if (drawn < tokens) tokens = (uint32_t)drawn;
      }
      documents[count++] = (struct plm_chunk_document){.start = at, .tokens = tokens};
      at += tokens;
    }
    document_begin[c + 1] = count;
  }
  return (struct plm_batch){.chunks = CHUNKS,
                            .max_length = scene->length,
                            .document_begin = document_begin,
                            .documents = documents};
}

static void *tensor(size_t count, bool is_bf16)
{
  float *values = calloc(count, sizeof *values);
  if (values == NULL) exit(1);
  for (size_t i = 0; i < count; i++) {
    const float x = (float)((i * 2654435761u) >> 8 & 0xffff) / 32768.0f - 1;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (is_bf16)
      ((uint16_t *)(void *)values)[i] = (uint16_t)(bits >> 16);
    else
      values[i] = x;
  }
  return values;
}

static void measure(const struct scene *scene, const struct plm_attention_kernels *kernels,
                    struct plm_pool *pool, double product)
{
  const struct plm_batch batch = pack(scene);
  const size_t width = (size_t)(scene->heads * scene->K), rows = (size_t)CHUNKS * scene->length;
  const struct plm_attention_shape shape = {.B = CHUNKS,
                                            .L = (int32_t)scene->length,
                                            .H = scene->heads,
                                            .K = scene->K,
                                            .row_stride = 3 * scene->heads * scene->K,
                                            .scale = 1 / sqrtf((float)scene->K)};
  struct plm_interval_mask mask;
  int32_t *values = malloc(plm_mask_values(CHUNKS, shape.L) * sizeof *values);
  char *qkv = tensor(3 * rows * width, scene->bf16), *dqkv = tensor(3 * rows * width, scene->bf16);
  void *out = tensor(rows * width, scene->bf16), *dout = tensor(rows * width, scene->bf16);
  float *lse = tensor(rows * (size_t)scene->heads, false);
  struct plm_attention *attention;
  if (values == NULL || plm_attention_open(kernels, pool, scene->bf16, &attention, NULL) != PLM_OK)
    exit(1);
  double masks_s, forward_s, backward_s;
  uint64_t pairs = 0;
  BEST_OF(masks_s,
          pairs = plm_mask_build(&batch, 0, scene->kinds, scene->window, 0, values, values, &mask));
  const size_t part = width * (scene->bf16 ? 2 : 4);
  BEST_OF(forward_s, plm_attention_forward(attention, out, lse, qkv, qkv + part, qkv + 2 * part,
                                           &mask, &shape));
  BEST_OF(backward_s,
          plm_attention_backward(attention, dqkv, dqkv + part, dqkv + 2 * part, dout, out, lse, qkv,
                                 qkv + part, qkv + 2 * part, &mask, &shape));
  const struct plm_attention_area area = plm_attention_area(attention);
  const double work = 1e-9 * (double)pairs * (double)scene->heads * scene->K;
  const double both = 14 * work / (forward_s + backward_s);
  printf("%-22s %8.3f %9.1f %9.1f %9.1f %7.0f %% %10.0f\n", scene->name,
         (double)area.executed / (double)area.allowed, 4 * work / forward_s, 10 * work / backward_s,
         both, 100 * both / product, 1e6 * masks_s);
  plm_attention_close(attention);
  free(values);
  free(qkv);
  free(dqkv);
  free(out);
  free(dout);
  free(lse);
}

int main(int argc, char **argv)
{
  const uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
  const char *isa = argc > 2 ? argv[2] : "portable";
  const struct plm_attention_kernels *kernels = &plm_attention_kernels_portable;
#if defined(__x86_64__)
  if (argc <= 2) {
    if (__builtin_cpu_supports("avx2")) isa = "avx2";
    if (__builtin_cpu_supports("avx512vl")) isa = "avx512";
    if (__builtin_cpu_supports("avx512bf16")) isa = "avx512_bf16";
  }
  if (strcmp(isa, "avx2") == 0) kernels = &plm_attention_kernels_avx2;
  if (strcmp(isa, "avx512") == 0) kernels = &plm_attention_kernels_avx512;
  if (strcmp(isa, "avx512_bf16") == 0) kernels = &plm_attention_kernels_avx512_bf16;
#endif
  struct plm_pool *pool;
  if (threads == 0 || plm_pool_open(threads, &pool, NULL) != PLM_OK) return 2;
  bench_machine();
  const double product = product_rate(threads);
  printf("%s, %u threads; oneDNN sgemm at 2048^3: %.1f GFLOP/s\n", isa, threads, product);
  printf("%-22s %8s %9s %9s %9s %9s %10s\n", "", "executed", "forward", "backward", "both",
         "of sgemm", "mask us");
  printf("%-22s %8s %9s %9s %9s\n", "", "/allowed", "GFLOP/s", "GFLOP/s", "GFLOP/s");
  for (size_t i = 0; i < sizeof SCENES / sizeof *SCENES; i++)
    measure(&SCENES[i], kernels, pool, product);
  plm_pool_close(pool);
  return 0;
}
