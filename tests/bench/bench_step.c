/* Measures a training step (forward, backward and optimizer) of the demo model, of U-Nets of 6x384
 * and 24x768, and of patch_unets of the same widths, in fp32 and bf16, on real sequences. The rate
 * is also shown as a share of the machine's product rate: that of 2048^3 with the same threads in
 * the same run, by the backend, or by OpenBLAS if it is installed and faster.
 *
 *   bench_step [MODEL]... [fp32|bf16] [--corpus DIR] [--seconds S] [--threads N] [--cpu-time]
 *   bench_step MODEL fp32|bf16 --rounds BATCH [--corpus DIR] [--chunks N] [--threads N] [--layers
 * N] bench_step MODEL fp32|bf16 --trace [--device cuda] [--corpus DIR] [--chunks N]
 *
 * --cpu-time measures the CPU time of the process, divided by its threads, instead of elapsed time.
 * With --threads 1 on a busy machine, this gives the figures of a quiet one.
 * --rounds writes the batch to the file BATCH for a peer and then measures on demand
 * (tests/support/bench/bench_rounds.h): passes (masks, forward, backward), updates, products.
 * --layers trains only so many of the model's layers.
 * --trace times each operator of a pass and of an update separately
 * (tests/support/operators/ops_trace.h). It prints a line for each, with tabs: pass or update,
 * operator, calls, seconds, bytes, operations.
 *
 * The operations of the optimizer are not counted, but the time of a step includes it. The last
 * table, whole steps in fp32 and bf16, is the one to quote. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "tests/support/bench/bench_product.h"
#include "tests/support/bench/bench_rounds.h"
#include "tests/support/bench/bench_scene.h"
#include "tests/support/bench/bench_trainee.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/ops_trace.h"

static bool by_processor_time;
static uint32_t clock_threads = 1;

/* CPU time of the process, of all its threads. */
static double processor_seconds(void)
{
  struct timespec time;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t now_ns(void)
{
  if (!by_processor_time) return plm_clock_ns();
  return (uint64_t)(1e9 * processor_seconds() / clock_threads);
}

/* Measures and prints the product rate; returns FLOP/s. */
static double product_rate(struct plm_ops *ops)
{
  static double blas_s = INFINITY;
  struct bench_product product;
  double best_s = INFINITY;
  bench_product_open(&product, ops);
  for (int i = 0; i < 8; i++) {
    const uint64_t started = now_ns();
    bench_product_run(&product);
    best_s = fmin(best_s, 1e-9 * (double)(now_ns() - started));
  }
  const bool has_blas = bench_product_has_blas(&product);
  for (int i = 0; has_blas && ops->act_bytes == 4 && i < 5; i++) {
    const uint64_t started = now_ns();
    bench_product_run_blas(&product);
    blas_s = fmin(blas_s, 1e-9 * (double)(now_ns() - started));
  }
  bench_product_close(&product);
  double rate = BENCH_PRODUCT_FLOPS / best_s;
  printf("product 2048^3, %s, %u threads: backend %.0f GFLOP/s",
         ops->act_bytes == 2 ? "bf16" : "fp32", ops->threads, 1e-9 * rate);
  if (ops->act_bytes == 4 && has_blas) {
    printf(", OpenBLAS %.0f", 1e-9 * BENCH_PRODUCT_FLOPS / blas_s);
    rate = fmax(rate, BENCH_PRODUCT_FLOPS / blas_s);
  }
  printf("\n");
  return rate;
}

struct timing {
  double masks_s, model_s; /* model_s is for forward and backward */
};

static double lap(uint64_t *since)
{
  const uint64_t now = now_ns();
  const double took_s = 1e-9 * (double)(now - *since);
  *since = now;
  return took_s;
}

static struct timing pass(struct bench_trainee *t)
{
  struct timing took;
  uint64_t clock = now_ns();
  bench_trainee_masks(t);
  took.masks_s = lap(&clock);
  bench_trainee_gradients(t);
  took.model_s = lap(&clock);
  return took;
}

static double update(struct bench_trainee *t)
{
  uint64_t clock = now_ns();
  bench_trainee_update(t);
  return lap(&clock);
}

struct figures {
  double tokens_per_s, pass_share, step_share; /* step_share includes masks and optimizer */
};

static struct figures bench(const struct bench_subject *subject, struct plm_ops *ops,
                            const char *corpus, double rate, double budget_s)
{
  struct bench_trainee t;
  struct timing best = {INFINITY, INFINITY};
  double optimizer_s = INFINITY;
  bench_trainee_open(&t, subject, ops, corpus, subject->micro_batch_tokens / subject->max_length);
  const uint64_t started = now_ns();
  for (int i = 0; i < 2 || 1e-9 * (double)(now_ns() - started) < budget_s; i++) {
    const struct timing took = pass(&t);
    best.masks_s = fmin(best.masks_s, took.masks_s);
    best.model_s = fmin(best.model_s, took.model_s);
    optimizer_s = fmin(optimizer_s, update(&t));
  }
  const double flops = plm_model_flops(t.model, t.masks, t.load.real_tokens);
  const double pass_s = best.masks_s + best.model_s;
  const double micro_batches = (double)subject->batch_tokens / subject->micro_batch_tokens;
  const double step_s = micro_batches * pass_s + optimizer_s;
  const struct figures figures = {
      .tokens_per_s = micro_batches * (double)t.load.real_tokens / step_s,
      .pass_share = flops / pass_s / rate,
      .step_share = micro_batches * flops / step_s / rate,
  };
  printf("%-12s %-5s %8u %8.1f %8.1f %9.1f %9.0f %8.0f %6.1f%% %6.1f%%\n", subject->name,
         ops->act_bytes == 2 ? "bf16" : "fp32", subject->batch_tokens, 1e3 * best.masks_s,
         1e3 * best.model_s, 1e3 * optimizer_s, figures.tokens_per_s, 1e-9 * flops / pass_s,
         100.0 * figures.pass_share, 100.0 * figures.step_share);
  (void)fflush(stdout);
  bench_trainee_close(&t);
  return figures;
}

/* Whole steps in fp32 and bf16: tokens/s, share of the product rate, and the gain of bf16. */
static void print_summary(struct figures figures[2][BENCH_SUBJECTS], uint32_t threads)
{
  printf("\nwhole steps with the optimizer, %u threads, by %s\n", threads,
         by_processor_time ? "processor time" : "the clock");
  printf("%-12s %22s %22s %12s\n", "", "fp32", "bf16", "bf16 / fp32");
  for (int s = 0; s < BENCH_SUBJECTS; s++) {
    const struct figures *fp32 = &figures[0][s], *in_bf16 = &figures[1][s];
    if (fp32->tokens_per_s == 0 || in_bf16->tokens_per_s == 0) continue;
    printf("%-12s %9.0f tok/s %5.1f%% %9.0f tok/s %5.1f%% %10.2f x\n", bench_subjects[s].name,
           fp32->tokens_per_s, 100.0 * fp32->step_share, in_bf16->tokens_per_s,
           100.0 * in_bf16->step_share, in_bf16->tokens_per_s / fp32->tokens_per_s);
  }
}

/* ---- rounds ---- */

static void print_fine_tuning(const struct plm_model_config *m)
{
  const char *before = "";
  printf("\"fine_tuning\": {\"intermediate_size\": %u, \"rank\": %u, \"alpha\": %g, \"targets\": [",
         m->intermediate_size, m->lora.rank, m->lora.alpha);
  for (int i = 0; i < PLM_LORA_TARGETS; i++) {
    if ((m->lora.targets >> i & 1) == 0) continue;
    printf("%s\"%s\"", before, plm_lora_target_names[i]);
    before = ", ";
  }
  printf("]}, ");
}

/* What the peer needs to build the same model, and what the driver needs for the table. */
static void print_ready(const struct bench_trainee *t)
{
  const struct plm_model_config *m = &t->config.model;
  struct plm_model *model = t->model;
  printf(
      "{\"config\": {\"architecture\": \"%s\", \"hidden_size\": %u, \"num_attention_heads\": %u, "
      "\"num_hidden_layers\": %u, \"num_unet_layers\": %u, \"num_extra_layers\": %u, "
      "\"expansion_ratio\": %.17g, \"soft_logit_cap\": %g, \"max_length\": %u}, ",
      plm_architecture_name(m->architecture), m->hidden_size, m->num_attention_heads,
      m->num_hidden_layers, m->num_unet_layers, m->num_extra_layers, m->expansion_ratio,
      m->soft_logit_cap, m->max_length);
  if (t->subject->fine_tuned) print_fine_tuning(m);
  printf("\"tokens\": %llu, \"places\": %u, \"targets\": %u, \"step_places\": %u, "
         "\"pass_flops\": %.9g, \"parameters\": %zu}\n",
         (unsigned long long)t->load.real_tokens, t->load.batch.chunks * m->max_length,
         t->load.targets.rows, t->subject->batch_tokens,
         plm_model_flops(model, t->masks, t->load.real_tokens), plm_model_arena_elements(model));
  (void)fflush(stdout);
}

static void answer_passes(struct bench_trainee *t, unsigned count)
{
  double *seconds = must(calloc(count, sizeof *seconds));
  double *cpu_s = must(calloc(count, sizeof *cpu_s));
  struct timing sum = {0};
  for (unsigned i = 0; i < count; i++) {
    const double began_s = processor_seconds();
    const struct timing took = pass(t);
    cpu_s[i] = processor_seconds() - began_s;
    seconds[i] = took.masks_s + took.model_s;
    sum.masks_s += took.masks_s;
    sum.model_s += took.model_s;
  }
  bench_answer_values("seconds", seconds, count);
  bench_answer_values("cpu_s", cpu_s, count);
  bench_answer_values("masks_s", &sum.masks_s, 1);
  bench_answer_values("model_s", &sum.model_s, 1);
  free(seconds);
  free(cpu_s);
}

static void answer_updates(struct bench_trainee *t, unsigned count)
{
  double *seconds = must(calloc(count, sizeof *seconds));
  double *cpu_s = must(calloc(count, sizeof *cpu_s));
  for (unsigned i = 0; i < count; i++) {
    const double began_s = processor_seconds();
    seconds[i] = update(t);
    cpu_s[i] = processor_seconds() - began_s;
  }
  bench_answer_values("seconds", seconds, count);
  bench_answer_values("cpu_s", cpu_s, count);
  free(seconds);
  free(cpu_s);
}

static void answer_products(struct bench_product *product, unsigned count, bool blas)
{
  double *seconds = must(calloc(count, sizeof *seconds));
  if (blas && !bench_product_has_blas(product)) count = 0;
  for (unsigned i = 0; i < count; i++) {
    uint64_t clock = now_ns();
    (blas ? bench_product_run_blas : bench_product_run)(product);
    seconds[i] = lap(&clock);
  }
  bench_answer_values("seconds", seconds, count);
  free(seconds);
}

static int rounds(const struct bench_subject *subject, struct plm_ops *ops, const char *corpus,
                  uint32_t chunks, const char *batch_path)
{
  struct bench_trainee t;
  struct bench_product product;
  struct bench_request request;
  struct plm_error error = {0};
  bench_trainee_open(&t, subject, ops, corpus, chunks);
  must_work(bench_batch_write(&t.load, batch_path, &error), &error);
  bench_product_open(&product, ops);
  (void)pass(&t);
  print_ready(&t);
  while (bench_request_read(&request)) {
    if (strcmp(request.verb, "pass") == 0) {
      answer_passes(&t, request.count);
    } else if (strcmp(request.verb, "update") == 0) {
      answer_updates(&t, request.count);
    } else if (strcmp(request.verb, "product") == 0 || strcmp(request.verb, "blas") == 0) {
      answer_products(&product, request.count, request.verb[0] == 'b');
    } else {
      (void)fprintf(stderr, "bench_step: unknown request: %s\n", request.verb);
      return 2;
    }
    bench_answer_end();
  }
  bench_product_close(&product);
  bench_trainee_close(&t);
  return 0;
}

/* ---- trace ---- */

static void print_trace(const char *what, struct plm_ops *ops)
{
  unsigned count;
  const struct ops_trace_row *rows = ops_trace_end(ops, &count);
  for (unsigned i = 0; i < count; i++)
    printf("%s\t%s\t%u\t%.6g\t%.6g\t%.6g\n", what, rows[i].name, rows[i].calls, rows[i].seconds,
           rows[i].bytes, rows[i].flops);
}

/* Also measures how long a pass and an update take without a wait for each operator. */
static void trace(const struct bench_subject *subject, struct plm_ops *ops, const char *corpus,
                  uint32_t chunks)
{
  struct bench_trainee t;
  bench_trainee_open(&t, subject, ops, corpus, chunks);
  if (ops->tune != NULL) ops->tune(ops, true, NULL);
  double pass_s = INFINITY, update_s = INFINITY;
  for (int i = 0; i < 3; i++) {
    const struct timing took = pass(&t);
    pass_s = fmin(pass_s, took.model_s);
    update_s = fmin(update_s, update(&t));
  }
  ops_trace_begin(ops);
  (void)pass(&t);
  print_trace("pass", ops);
  ops_trace_begin(ops);
  (void)update(&t);
  print_trace("update", ops);
  printf("whole\tpass\t1\t%.6g\t0\t%.6g\n", pass_s,
         plm_model_flops(t.model, t.masks, t.load.real_tokens));
  printf("whole\tupdate\t1\t%.6g\t0\t0\n", update_s);
  bench_trainee_close(&t);
}

struct arguments {
  enum plm_device device;
  bool trace;
  bool chosen[BENCH_SUBJECTS], any, fp32, bf16;
  double budget_s;
  uint32_t threads, chunks, layers;
  const char *corpus, *batch_path;
};

static struct arguments parse(int argc, char **argv)
{
  struct arguments a = {.device = PLM_DEVICE_CPU, .fp32 = true, .bf16 = true, .budget_s = 5.0};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    bool known = true, pair = true;
    if (strcmp(argv[i], "--seconds") == 0) {
      a.budget_s = atof(value);
    } else if (strcmp(argv[i], "--threads") == 0) {
      a.threads = (uint32_t)atoi(value);
    } else if (strcmp(argv[i], "--chunks") == 0) {
      a.chunks = (uint32_t)atoi(value);
    } else if (strcmp(argv[i], "--layers") == 0) {
      a.layers = (uint32_t)atoi(value);
    } else if (strcmp(argv[i], "--corpus") == 0) {
      a.corpus = value;
    } else if (strcmp(argv[i], "--rounds") == 0) {
      a.batch_path = value;
    } else if (strcmp(argv[i], "--device") == 0) {
      a.device = strcmp(value, "cuda") == 0 ? PLM_DEVICE_CUDA : PLM_DEVICE_CPU;
    } else {
      pair = false;
      known = strcmp(argv[i], "--trace") == 0 || strcmp(argv[i], "--cpu-time") == 0 ||
              strcmp(argv[i], "fp32") == 0 || strcmp(argv[i], "bf16") == 0;
      if (strcmp(argv[i], "--trace") == 0) a.trace = true;
      if (strcmp(argv[i], "--cpu-time") == 0) by_processor_time = true;
      if (strcmp(argv[i], "fp32") == 0) a.bf16 = false;
      if (strcmp(argv[i], "bf16") == 0) a.fp32 = false;
      for (int s = 0; s < BENCH_SUBJECTS; s++)
        if (strcmp(argv[i], bench_subjects[s].name) == 0) known = a.any = a.chosen[s] = true;
    }
    if (!known) {
      (void)fprintf(stderr, "bench_step: unknown argument: %s\n", argv[i]);
      exit(2);
    }
    if (pair) i++;
  }
  return a;
}

static void table(const struct arguments *a)
{
  struct figures figures[2][BENCH_SUBJECTS] = {0};
  bench_machine();
  for (int precision = 0; precision < 2; precision++) {
    struct plm_error error = {0};
    struct plm_ops *ops;
    if (precision == 0 ? !a->fp32 : !a->bf16) continue;
    must_work(plm_ops_cpu_open(precision == 0 ? PLM_PRECISION_FP32 : PLM_PRECISION_BF16, a->threads,
                               NULL, &ops, &error),
              &error);
    clock_threads = ops->threads;
    const double rate = product_rate(ops);
    printf("%-12s %-5s %8s %8s %8s %9s %9s %8s %7s %7s\n", "model", "", "tokens", "masks", "passes",
           "optimizer", "tokens/s", "GFLOP/s", "both", "step");
    printf("%-12s %-5s %8s %8s %8s %9s %9s %8s %15s\n", "", "", "a step", "ms", "ms", "ms",
           "a step", "a pass", "of product rate");
    for (int s = 0; s < BENCH_SUBJECTS; s++)
      if (!a->any || a->chosen[s])
        figures[precision][s] = bench(&bench_subjects[s], ops, a->corpus, rate, a->budget_s);
    ops->close(ops);
  }
  if (a->fp32 && a->bf16) print_summary(figures, clock_threads);
}

int main(int argc, char **argv)
{
  struct arguments a = parse(argc, argv);
  if (a.corpus == NULL) a.corpus = bench_sample_corpus();
  if (a.corpus == NULL) return 1;
  if (a.batch_path == NULL && !a.trace) {
    table(&a);
    return 0;
  }
  int subject = -1;
  for (int s = 0; s < BENCH_SUBJECTS; s++)
    if (a.chosen[s]) subject = s;
  if (subject < 0 || a.fp32 == a.bf16) {
    (void)fprintf(stderr, "bench_step: --rounds and --trace need one model and one precision\n");
    return 2;
  }
  struct plm_error error = {0};
  struct plm_ops *ops;
  const struct plm_ops_request request = {.device = a.device,
                                          .precision =
                                              a.fp32 ? PLM_PRECISION_FP32 : PLM_PRECISION_BF16,
                                          .threads = a.threads};
  must_work(plm_ops_open(&request, &ops, &error), &error);
  struct bench_subject fewer = bench_subjects[subject];
  if (a.layers > 0) fewer.layers = a.layers;
  const struct bench_subject *s = &fewer;
  const uint32_t chunks = a.chunks > 0 ? a.chunks : s->micro_batch_tokens / s->max_length;
  int status = 0;
  if (a.trace)
    trace(s, ops, a.corpus, chunks);
  else
    status = rounds(s, ops, a.corpus, chunks, a.batch_path);
  ops->close(ops);
  return status;
}
