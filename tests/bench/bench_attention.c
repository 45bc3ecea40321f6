/* Measures attention, forward and backward, on packed documents. Prints the computed query-key
 * pairs divided by the allowed ones, and the rate of the allowed work, also as a share of the rate
 * of the backend's fp32 product in the same run.
 *
 *   bench_attention [THREADS [ISA]]
 *   bench_attention --rounds NAME DOCUMENTS [THREADS]
 *
 * --rounds writes the documents of the scene NAME to the file DOCUMENTS for a peer (int32 values
 * B, L, H, K, then (B, L) document numbers, -1 for padding) and then measures on demand
 * (tests/support/bench/bench_rounds.h): forward and backward passes, masks included.
 *
 * For each pair and head, the work is 4 K operations forward (two products) and 10 K backward (five
 * products). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/numbers/philox.h"
#include "common/model/masks.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/processor.h"
#include "tests/support/bench/bench_rounds.h"
#include "tests/support/bench/bench_scene.h"

enum { CHUNKS = 8, MAX_DOCUMENTS = 8192 };

struct scene {
  const char *name;
  uint32_t length, median; /* tokens of a chunk and of the median document; 0: one fills a chunk */
  int32_t heads, K;
  unsigned kinds;
  uint32_t window;
  bool bf16;
  bool rounds; /* the forward pass rounds floats to bf16, as with int8 products */
};

static const struct scene SCENES[] = {
    {"demo, 2 x 64", 512, 300, 2, 64, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"6x384, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"24x768, 6 x 128", 1024, 300, 6, 128, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"ESM-2 8M, 20 x 16", 1024, 300, 20, 16, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"ESM-2 35M, 20 x 24", 1024, 300, 20, 24, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"12 x 32", 1024, 300, 12, 32, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"level 2, 12 x 80", 256, 75, 12, 80, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"causal, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL, 0, false,
     false},
    {"window 128, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL, 128,
     false, false},
    {"one document, 6 x 64", 1024, 0, 6, 64, PLM_ATTENTION_DOCUMENT, 0, false, false},
    {"6x384, bf16, 6 x 64", 1024, 300, 6, 64, PLM_ATTENTION_DOCUMENT, 0, true, false},
    {"24x768, bf16, 6 x 128", 1024, 300, 6, 128, PLM_ATTENTION_DOCUMENT, 0, true, false},
    {"35M, rounded, 20 x 24", 1024, 300, 20, 24, PLM_ATTENTION_DOCUMENT, 0, false, true},
    {"8M, rounded, 20 x 16", 1024, 300, 20, 16, PLM_ATTENTION_DOCUMENT, 0, false, true},
};

static double now_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best of some runs, since other work on the machine can only slow them down. */
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

/* GFLOP/s of the backend's fp32 product at 2048^3. */
static double product_rate(uint32_t threads)
{
  enum { SIDE = 2048, OPERANDS = 3 };
  const size_t count = (size_t)SIDE * SIDE;
  struct plm_ops *ops;
  void *buffers[OPERANDS] = {0};
  float *values = malloc(count * sizeof *values);
  if (values == NULL || plm_ops_cpu_open(PLM_PRECISION_FP32, threads, NULL, &ops, NULL) != PLM_OK)
    exit(1);
  for (size_t i = 0; i < count; i++) values[i] = (float)(i % 7) - 3;
  for (int i = 0; i < OPERANDS; i++) {
    if (ops->allocate(ops, count * sizeof *values, &buffers[i], NULL) != PLM_OK) exit(1);
    ops->upload(ops, buffers[i], values, count * sizeof *values);
  }
  double seconds;
  BEST_OF(seconds,
          (ops->linear_forward(ops, buffers[0], buffers[1], buffers[2], NULL, SIDE, SIDE, SIDE),
           ops->synchronize(ops, NULL)));
  for (int i = 0; i < OPERANDS; i++) ops->release(ops, buffers[i]);
  ops->close(ops);
  free(values);
  return 2e-9 * (double)SIDE * SIDE * SIDE / seconds;
}

static struct plm_chunk_document documents[MAX_DOCUMENTS];
static uint32_t document_begin[CHUNKS + 1];

/* Fills the chunks with documents of log-normal lengths, like those of proteins. The last document
 * of a chunk is cut at its end. */
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

/* A scene with its tensors. */
struct stage {
  struct plm_batch batch;
  struct plm_attention_shape shape;
  struct plm_interval_mask mask;
  struct plm_attention *attention;
  int32_t *values;
  char *qkv, *dqkv;
  void *out, *dout;
  float *lse;
  size_t part; /* bytes from q to k and from k to v in a row */
};

static void stage_open(struct stage *s, const struct scene *scene,
                       const struct plm_attention_kernels *kernels, struct plm_pool *pool)
{
  const size_t width = (size_t)(scene->heads * scene->K), rows = (size_t)CHUNKS * scene->length;
  *s = (struct stage){.batch = pack(scene),
                      .shape = {.B = CHUNKS,
                                .L = (int32_t)scene->length,
                                .H = scene->heads,
                                .K = scene->K,
                                .row_stride = 3 * scene->heads * scene->K,
                                .scale = 1 / sqrtf((float)scene->K)},
                      .qkv = tensor(3 * rows * width, scene->bf16),
                      .dqkv = tensor(3 * rows * width, scene->bf16),
                      .out = tensor(rows * width, scene->bf16),
                      .dout = tensor(rows * width, scene->bf16),
                      .lse = tensor(rows * (size_t)scene->heads, false),
                      .part = width * (scene->bf16 ? 2 : 4)};
  s->values = malloc(plm_mask_values(CHUNKS, s->shape.L) * sizeof *s->values);
  if (s->values == NULL) exit(1);
  s->attention = plm_attention_open(kernels, pool, scene->bf16, scene->rounds);
}

static void stage_close(struct stage *s)
{
  plm_attention_close(s->attention);
  free(s->values);
  free(s->qkv);
  free(s->dqkv);
  free(s->out);
  free(s->dout);
  free(s->lse);
}

/* Builds the masks; returns the number of allowed pairs. */
static uint64_t masks(struct stage *s, const struct scene *scene)
{
  return plm_mask_build(&s->batch, 0, scene->kinds, scene->window, 0, s->values, s->values,
                        &s->mask);
}

static void forward(struct stage *s)
{
  const struct plm_attention_inputs in = plm_attention_inputs_of(s->qkv, s->part);
  plm_attention_forward(s->attention, s->out, s->lse, &in, &s->mask, &s->shape);
}

static void backward(struct stage *s)
{
  const struct plm_attention_inputs in = plm_attention_inputs_of(s->qkv, s->part);
  const struct plm_attention_gradients to = plm_attention_gradients_of(s->dqkv, s->part);
  plm_attention_backward(s->attention, &to, s->dout, s->out, s->lse, &in, &s->mask, &s->shape);
}

static void measure(const struct scene *scene, const struct plm_attention_kernels *kernels,
                    struct plm_pool *pool, double product)
{
  struct stage s;
  double masks_s, forward_s, backward_s;
  uint64_t pairs = 0;
  stage_open(&s, scene, kernels, pool);
  BEST_OF(masks_s, pairs = masks(&s, scene));
  BEST_OF(forward_s, forward(&s));
  BEST_OF(backward_s, backward(&s));
  const struct plm_attention_area area = plm_attention_area(s.attention);
  const double work = 1e-9 * (double)pairs * (double)scene->heads * scene->K;
  const double both = 14 * work / (forward_s + backward_s);
  printf("%-22s %8.3f %9.1f %9.1f %9.1f %7.0f %% %10.0f\n", scene->name,
         (double)area.executed / (double)area.allowed, 4 * work / forward_s, 10 * work / backward_s,
         both, 100 * both / product, 1e6 * masks_s);
  stage_close(&s);
}

/* ---- rounds ---- */

static bool write_documents(const struct stage *s, const char *path)
{
  const int32_t head[4] = {CHUNKS, s->shape.L, s->shape.H, s->shape.K};
  FILE *file = fopen(path, "wb");
  bool good = file != NULL && fwrite(head, sizeof head, 1, file) == 1;
  for (uint32_t c = 0; c < CHUNKS && good; c++)
    for (uint32_t d = document_begin[c]; d < document_begin[c + 1]; d++)
      for (uint32_t i = 0; i < documents[d].tokens && good; i++)
        good = fwrite(&d, sizeof d, 1, file) == 1; /* there is no padding */
  return file != NULL && fclose(file) == 0 && good;
}

static int rounds(const struct scene *scene, const struct plm_attention_kernels *kernels,
                  struct plm_pool *pool, const char *path)
{
  enum { MOST = 1024 };
  static double forward_s[MOST], backward_s[MOST];
  struct stage s;
  struct bench_request request;
  stage_open(&s, scene, kernels, pool);
  if (!write_documents(&s, path)) return 1;
  const uint64_t pairs = masks(&s, scene);
  forward(&s);
  backward(&s);
  const struct plm_attention_area area = plm_attention_area(s.attention);
  printf("{\"pairs\": %llu, \"executed\": %.6f, \"bf16\": %s, \"flops\": %.9g}\n",
         (unsigned long long)pairs, (double)area.executed / (double)area.allowed,
         scene->bf16 ? "true" : "false", 14.0 * (double)pairs * scene->heads * scene->K);
  (void)fflush(stdout);
  while (bench_request_read(&request)) {
    const unsigned count = request.count < MOST ? request.count : MOST;
    for (unsigned i = 0; i < count; i++) {
      const double begin = now_s();
      (void)masks(&s, scene);
      forward(&s);
      const double middle = now_s();
      backward(&s);
      forward_s[i] = middle - begin;
      backward_s[i] = now_s() - middle;
    }
    bench_answer_values("forward_s", forward_s, count);
    bench_answer_values("backward_s", backward_s, count);
    bench_answer_end();
  }
  stage_close(&s);
  return 0;
}

static const struct plm_attention_kernels *choose(const char **isa)
{
#if defined(__x86_64__)
  if (*isa == NULL) {
    if (__builtin_cpu_supports("avx2")) *isa = "avx2";
    if (__builtin_cpu_supports("avx512vl")) *isa = "avx512";
    if (__builtin_cpu_supports("avx512bf16"))
      *isa = plm_processor_splits_vectors() ? "narrow" : "avx512_bf16";
    if (plm_processor_level() >= PLM_PROCESSOR_AMX) *isa = "avx512_amx";
  }
  if (*isa != NULL && strcmp(*isa, "avx2") == 0) return &plm_attention_kernels_avx2;
  if (*isa != NULL && strcmp(*isa, "avx512") == 0) return &plm_attention_kernels_avx512;
  if (*isa != NULL && strcmp(*isa, "narrow") == 0) return &plm_attention_kernels_narrow;
  if (*isa != NULL && strcmp(*isa, "avx512_bf16") == 0) return &plm_attention_kernels_avx512_bf16;
  if (*isa != NULL && strcmp(*isa, "avx512_amx") == 0 && plm_processor_level() >= PLM_PROCESSOR_AMX)
    return &plm_attention_kernels_avx512_amx;
#endif
  *isa = "portable";
  return &plm_attention_kernels_portable;
}

int main(int argc, char **argv)
{
  const bool in_rounds = argc > 3 && strcmp(argv[1], "--rounds") == 0;
  const int at = in_rounds ? 4 : 1; /* position of THREADS */
  const uint32_t threads = argc > at ? (uint32_t)atoi(argv[at]) : 1;
  const char *isa = argc > at + 1 ? argv[at + 1] : NULL;
  const struct plm_attention_kernels *kernels = choose(&isa);
  const size_t scenes = sizeof SCENES / sizeof *SCENES;
  struct plm_pool *pool;
  if (threads == 0 || plm_pool_open(threads, &pool, NULL) != PLM_OK) return 2;
  if (in_rounds) {
    size_t i = 0;
    while (i < scenes && strcmp(SCENES[i].name, argv[2]) != 0) i++;
    const int status = i < scenes ? rounds(&SCENES[i], kernels, pool, argv[3]) : 2;
    plm_pool_close(pool);
    return status;
  }
  bench_machine();
  const double product = product_rate(threads);
  printf("%s, %u threads; fp32 product at 2048^3: %.1f GFLOP/s\n", isa, threads, product);
  printf("%-22s %8s %9s %9s %9s %9s %10s\n", "", "executed", "forward", "backward", "both",
         "of prod.", "mask us");
  printf("%-22s %8s %9s %9s %9s\n", "", "/allowed", "GFLOP/s", "GFLOP/s", "GFLOP/s");
  for (size_t i = 0; i < scenes; i++) measure(&SCENES[i], kernels, pool, product);
  plm_pool_close(pool);
  return 0;
}
