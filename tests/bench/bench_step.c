/* A training step on the CPU: forward, backward and optimizer of the demo model, 6x384 and 24x768,
 * in fp32 and bf16, as a share of the machine's product rate (2048^3, the faster of the backend's
 * product and OpenBLAS where it is installed, same threads, same run).
 *
 *   bench_step [demo|6x384|24x768]... [fp32|bf16] [--seconds S] [--threads N] [--cpu-time]
 *
 * --cpu-time divides the process's processor time by its threads instead of taking the clock: on a
 * machine that others use, with --threads 1, it says what a quiet one would.
 *
 * Model FLOPs as model.md counts them; the optimizer's are not counted, its time is. The last table
 * is the one to quote: whole steps, fp32 beside bf16. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/model/model.h"
#include "tests/support/bench_scene.h"
#include "tests/support/must.h"
#include "trainer/optimizers.h"

struct subject {
  const char *name;
  enum plm_architecture architecture;
  uint32_t width, heads, layers, extra;
  double ratio;
  uint32_t max_length, micro_batch_tokens, batch_tokens;
};

static const struct subject subjects[] = {
    {"demo", PLM_PATCH_UNET, 128, 4, 6, 1, 2.0, 512, 4096, 4096},
    {"6x384", PLM_UNET, 384, 6, 6, 0, 8.0 / 3.0, 1024, 4096, 16384},
    {"24x768", PLM_UNET, 768, 6, 24, 0, 8.0 / 3.0, 1024, 2048, 65536},
};

static uint64_t random_state = 1;
static bool by_processor_time;
static uint32_t clock_threads = 1;

static uint64_t now_ns(void)
{
  if (!by_processor_time) return plm_clock_ns();
  struct timespec time;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return ((uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec) / clock_threads;
}

static uint64_t random_word(void)
{
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static double random_unit(void)
{
  return ((double)(random_word() >> 12) + 0.5) * 0x1p-52;
}

static void require(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("bench_step", error);
  exit(1);
}

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float *a, int lda, const float *b, int ldb,
                            float beta, float *c, int ldc);

/* FLOP/s of OpenBLAS, 0 when it is not installed. */
static double blas_rate(uint32_t threads, const float *a, const float *b, float *c, int side)
{
  char count[16];
  (void)snprintf(count, sizeof count, "%u", threads);
  (void)setenv("OPENBLAS_NUM_THREADS", count, 1);
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0.0;
  sgemm_function *sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
  double best_s = INFINITY;
  for (int i = 0; sgemm != NULL && i < 5; i++) {
    const uint64_t started = now_ns();
    sgemm(101, 111, 112, side, side, side, 1.0f, a, side, b, side, 0.0f, c, side);
    best_s = fmin(best_s, 1e-9 * (double)(now_ns() - started));
  }
  return 2.0 * pow(side, 3) / best_s; /* the library stays: its threads may not be unloaded */
}

static double product_rate(struct plm_ops *ops)
{
  enum { SIDE = 2048 };
  static double blas = -1.0;
  float *host = must(malloc(3 * sizeof(float) * SIDE * SIDE));
  void *buffer[4];
  for (size_t i = 0; i < 2 * SIDE * SIDE; i++) host[i] = (float)(random_unit() - 0.5);
  for (int i = 0; i < 4; i++)
    require(ops->allocate(ops, sizeof(float) * SIDE * SIDE, &buffer[i], NULL), NULL);
  for (int i = 0; i < 2; i++) {
    ops->upload(ops, buffer[3], host + (size_t)i * SIDE * SIDE, sizeof(float) * SIDE * SIDE);
    ops->round_weights(ops, buffer[i], buffer[3], (size_t)SIDE * SIDE);
  }
  double best_s = INFINITY;
  for (int i = 0; i < 8; i++) {
    const uint64_t started = now_ns();
    ops->linear_forward(ops, buffer[2], buffer[0], buffer[1], NULL, SIDE, SIDE, SIDE);
    require(ops->synchronize(ops, NULL), NULL);
    best_s = fmin(best_s, 1e-9 * (double)(now_ns() - started));
  }
  for (int i = 0; i < 4; i++) ops->release(ops, buffer[i]);
  double rate = 2.0 * pow(SIDE, 3) / best_s;
  if (blas < 0.0)
    blas = blas_rate(ops->threads, host, host + SIDE * SIDE, host + 2 * SIDE * SIDE, SIDE);
  printf("product 2048^3, %s, %u threads: backend %.0f GFLOP/s",
         ops->act_bytes == 2 ? "bf16" : "fp32", ops->threads, 1e-9 * rate);
  if (ops->act_bytes == 4 && blas > 0.0) {
    printf(", OpenBLAS %.0f", 1e-9 * blas);
    rate = fmax(rate, blas);
  }
  printf("\n");
  free(host);
  return rate;
}

struct load {
  struct plm_batch batch;
  struct plm_targets targets;
  uint64_t real_tokens;
};

/* Chunks full of documents of protein-like lengths (log-normal, median 300), 15 % masked. */
static void load_fill(struct load *load, const struct subject *subject)
{
  const uint32_t L = subject->max_length, chunks = subject->micro_batch_tokens / L;
  const size_t n = (size_t)chunks * L;
  const uint32_t alignment =
      subject->architecture == PLM_PATCH_UNET ? 1u << (subject->layers / 2 - 1) : 1;
  uint8_t *tokens = must(malloc(n));
  uint32_t *begin = must(calloc(chunks + 1, sizeof *begin));
  struct plm_chunk_document *documents = must(calloc(n, sizeof *documents));
  int32_t *inputs = must(malloc(n * sizeof *inputs)), *labels = must(malloc(n * sizeof *labels));
  int32_t *positions = must(malloc(n * sizeof *positions));
  float *weights = must(malloc(n * sizeof *weights));
  uint32_t count = 0, rows = 0;
  memset(tokens, 1, n);
  for (uint32_t c = 0; c < chunks; c++) {
    for (uint32_t at = 0; at + 32 <= L;) {
      const double normal = sqrt(-2.0 * log(random_unit())) * cos(2.0 * M_PI * random_unit());
      uint32_t length = (uint32_t)(300.0 * exp(0.7 * normal)) + 12;
      if (length > L - at) length = L - at;
      documents[count++] =
          (struct plm_chunk_document){.start = at, .tokens = length, .residues = length - 2};
      load->real_tokens += length;
      for (uint32_t i = 0; i < length; i++)
        tokens[(size_t)c * L + at + i] = (uint8_t)(4 + random_word() % 20);
      at = (at + length + alignment - 1) / alignment * alignment;
    }
    begin[c + 1] = count;
  }
  for (size_t i = 0; i < n; i++) {
    inputs[i] = tokens[i];
    if (tokens[i] < 4 || random_unit() > 0.15) continue;
    inputs[i] = 32;
    positions[rows] = (int32_t)i;
    labels[rows] = tokens[i];
    weights[rows++] = 1.0f;
  }
  load->batch = (struct plm_batch){.chunks = chunks,
                                   .max_length = L,
                                   .token_bytes = 1,
                                   .tokens = tokens,
                                   .document_begin = begin,
                                   .documents = documents};
  load->targets = (struct plm_targets){
      .inputs = inputs, .rows = rows, .positions = positions, .labels = labels, .weights = weights};
}

static void load_free(struct load *load)
{
  free((void *)load->batch.tokens);
  free((void *)load->batch.document_begin);
  free((void *)load->batch.documents);
  free((void *)load->targets.inputs);
  free((void *)load->targets.positions);
  free((void *)load->targets.labels);
  free((void *)load->targets.weights);
}

static struct plm_config configuration(const struct subject *subject)
{
  return (struct plm_config){.model = {.architecture = subject->architecture,
                                       .hidden_size = subject->width,
                                       .num_attention_heads = subject->heads,
                                       .num_hidden_layers = subject->layers,
                                       .num_unet_layers = subject->layers,
                                       .num_extra_layers = subject->extra,
                                       .expansion_ratio = subject->ratio,
                                       .soft_logit_cap = 16.0,
                                       .pattern = {PLM_ATTENTION_DOCUMENT},
                                       .pattern_count = 1,
                                       .window_start = subject->max_length,
                                       .window_end = subject->max_length,
                                       .max_length = subject->max_length,
                                       .vocab_size = 33},
                             .trainer = {.steps = 100,
                                         .optimizer = {.name = PLM_OPTIMIZER_MUON,
                                                       .lr_hidden = 0.005,
                                                       .lr_embed = 0.01,
                                                       .lr_head = 0.01,
                                                       .lr_scalar = 0.01,
                                                       .momentum = 0.95,
                                                       .momentum_warmup_steps = 100,
                                                       .betas = {0.8, 0.95}},
                                         .schedule = {.warmup_steps = 20, .cooldown_steps = 20}}};
}

struct timing {
  double masks_s, forward_s, backward_s, optimizer_s; /* the fastest of each */
};

static double lap(uint64_t *since)
{
  const uint64_t now = now_ns();
  const double took_s = 1e-9 * (double)(now - *since);
  *since = now;
  return took_s;
}

static struct timing measure(struct plm_model *model, struct plm_masks *masks,
                             struct plm_optimizer *optimizer, const struct load *load,
                             double budget_s)
{
  struct timing best = {INFINITY, INFINITY, INFINITY, INFINITY};
  const struct plm_loss_options loss = {.soft_cap = 16.0f};
  struct plm_loss_result result;
  struct plm_error error = {0};
  const uint64_t started = now_ns();
  for (int i = 0; i < 2 || 1e-9 * (double)(now_ns() - started) < budget_s; i++) {
    plm_model_zero_gradients(model);
    uint64_t clock = now_ns();
    plm_model_attention_masks(model, &load->batch, load->batch.max_length, masks);
    best.masks_s = fmin(best.masks_s, lap(&clock));
    require(
        plm_model_forward(model, &load->batch, masks, &load->targets, &loss, &result, NULL, &error),
        &error);
    best.forward_s = fmin(best.forward_s, lap(&clock));
    require(plm_model_backward(model, &load->batch, masks, &load->targets, &loss, 1.0f, &error),
            &error);
    require(plm_model_ops(model)->synchronize(plm_model_ops(model), &error), &error);
    best.backward_s = fmin(best.backward_s, lap(&clock));
    (void)plm_optimizer_gradient_norm(optimizer, result.rows);
    plm_optimizer_update(optimizer, (uint64_t)i, 1.0 / (double)result.rows);
    require(plm_model_ops(model)->synchronize(plm_model_ops(model), &error), &error);
    best.optimizer_s = fmin(best.optimizer_s, lap(&clock));
  }
  return best;
}

struct figures {
  double tokens_per_s, pass_share, step_share; /* the step's with masks and optimizer */
};

static struct figures bench(const struct subject *subject, struct plm_ops *ops, double rate,
                            double budget_s)
{
  const struct plm_config config = configuration(subject);
  const struct plm_model_options options = {
      .max_chunks = subject->micro_batch_tokens / subject->max_length, .training = true};
  struct plm_error error = {0};
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_optimizer *optimizer;
  struct load load = {0};
  size_t count;
  load_fill(&load, subject);
  require(plm_model_open(&config.model, ops, &options, &model, &error), &error);
  require(plm_masks_open(&config.model, ops, options.max_chunks, &masks, &error), &error);
  require(plm_optimizer_open(&config.trainer, model, &optimizer, &error), &error);
  const struct plm_parameter *table = plm_model_table(model, &count);
  const size_t elements = plm_model_arena_elements(model);
  float *weights = must(malloc(elements * sizeof(float)));
  plm_model_initialise(table, count, 1, weights);
  ops->upload(ops, plm_model_parameter_arena(model), weights, elements * sizeof(float));
  free(weights);
  plm_model_weights_changed(model);

  const struct timing t = measure(model, masks, optimizer, &load, budget_s);
  const double flops = plm_model_flops(model, masks, load.real_tokens);
  const double pass_s = t.masks_s + t.forward_s + t.backward_s;
  const double micro_batches = subject->batch_tokens / subject->micro_batch_tokens;
  const double step_s = micro_batches * pass_s + t.optimizer_s;
  const struct figures figures = {
      .tokens_per_s = micro_batches * (double)load.real_tokens / step_s,
      .pass_share = flops / pass_s / rate,
      .step_share = micro_batches * flops / step_s / rate,
  };
  printf("%-8s %-5s %8u %8.1f %8.1f %8.1f %9.1f %9.0f %8.0f %6.1f%% %6.1f%%\n", subject->name,
         ops->act_bytes == 2 ? "bf16" : "fp32", subject->batch_tokens, 1e3 * t.masks_s,
         1e3 * t.forward_s, 1e3 * t.backward_s, 1e3 * t.optimizer_s, figures.tokens_per_s,
         1e-9 * flops / pass_s, 100.0 * figures.pass_share, 100.0 * figures.step_share);
  (void)fflush(stdout);
  plm_optimizer_close(optimizer);
  plm_masks_close(masks);
  plm_model_close(model);
  load_free(&load);
  return figures;
}

/* fp32 beside bf16, whole steps: tokens/s, share of the product rate, and bf16's gain. */
static void print_summary(struct figures figures[2][3], uint32_t threads)
{
  printf("\nwhole steps with the optimizer, %u threads, by %s\n", threads,
         by_processor_time ? "processor time" : "the clock");
  printf("%-8s %22s %22s %12s\n", "", "fp32", "bf16", "bf16 / fp32");
  for (int s = 0; s < 3; s++) {
    const struct figures *full = &figures[0][s], *half = &figures[1][s];
    if (full->tokens_per_s == 0 || half->tokens_per_s == 0) continue;
    printf("%-8s %9.0f tok/s %5.1f%% %9.0f tok/s %5.1f%% %10.2f x\n", subjects[s].name,
           full->tokens_per_s, 100.0 * full->step_share, half->tokens_per_s,
           100.0 * half->step_share, half->tokens_per_s / full->tokens_per_s);
  }
}

int main(int argc, char **argv)
{
  bool chosen[3] = {false, false, false}, any = false, full = true, half = true;
  double budget_s = 5.0;
  uint32_t threads = 0;
  struct figures figures[2][3] = {0};
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) budget_s = atof(argv[++i]);
    if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) threads = (uint32_t)atoi(argv[++i]);
    if (strcmp(argv[i], "--cpu-time") == 0) by_processor_time = true;
    if (strcmp(argv[i], "fp32") == 0) half = false;
    if (strcmp(argv[i], "bf16") == 0) full = false;
    for (int s = 0; s < 3; s++)
      if (strcmp(argv[i], subjects[s].name) == 0) any = chosen[s] = true;
  }
  bench_machine();
  for (int precision = 0; precision < 2; precision++) {
    struct plm_error error = {0};
    struct plm_ops *ops;
    if (precision == 0 ? !full : !half) continue;
    require(plm_ops_cpu_open(precision == 0 ? PLM_PRECISION_FP32 : PLM_PRECISION_BF16, threads,
                             NULL, &ops, &error),
            &error);
    clock_threads = ops->threads;
    const double rate = product_rate(ops);
    printf("%-8s %-5s %8s %8s %8s %8s %9s %9s %8s %7s %7s\n", "model", "", "tokens", "masks",
           "forward", "backward", "optimizer", "tokens/s", "GFLOP/s", "pass", "step");
    printf("%-8s %-5s %8s %8s %8s %8s %9s %9s %8s %15s\n", "", "", "a step", "ms", "ms", "ms", "ms",
           "a step", "a pass", "of product rate");
    for (int s = 0; s < 3; s++)
      if (!any || chosen[s]) figures[precision][s] = bench(&subjects[s], ops, rate, budget_s);
    ops->close(ops);
  }
  if (full && half) print_summary(figures, clock_threads);
  return 0;
}
