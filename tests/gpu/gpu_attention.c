/* Attention on a GPU, forward and backward, over document lengths, head widths and masks. Prints a
 * line of JSON for each scene, and writes its mask for a peer to FOLDER/NAME.mask: int32 values B,
 * L, H, K, then (B, L) document numbers (-1 for padding), (B, L) first keys and (B, L) ends of
 * keys.
 *
 *   gpu_attention FOLDER [SHRINK [masks]]
 *
 * SHRINK divides lengths and chunks. With `masks` it writes only the masks and measures nothing.
 * Work counts 4 K operations for each pair and head forward, 10 K backward (its five products). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/numbers/philox.h"
#include "common/model/masks.h"
#include "common/model/model_config.h"
#include "common/ops/device.h"
#include "tests/support/bench/device_bench.h"
#include "tests/support/harness/must.h"
#include "tests/support/operators/device_case.h"

struct scene {
  const char *name;
  uint32_t chunks, length, median; /* median tokens of a document; 0 if one fills the chunk */
  int32_t heads, K;
  unsigned kinds;
  uint32_t window;
};

enum {
  DOCUMENT = PLM_ATTENTION_DOCUMENT,
  CAUSAL = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_CAUSAL,
  LOCAL = PLM_ATTENTION_DOCUMENT | PLM_ATTENTION_LOCAL,
};

static const struct scene scenes[] = {
    {"doc-1024-128", 64, 1024, 300, 6, 128, DOCUMENT, 0},
    {"doc-1024-64", 64, 1024, 300, 12, 64, DOCUMENT, 0},
    {"doc-4096-128", 16, 4096, 300, 6, 128, DOCUMENT, 0},
    {"doc-4096-64", 16, 4096, 300, 12, 64, DOCUMENT, 0},
    {"causal-1024-128", 64, 1024, 300, 6, 128, CAUSAL, 0},
    {"local-4096-128", 16, 4096, 1500, 6, 128, LOCAL, 256},
    {"one-16k-128", 1, 16384, 0, 16, 128, DOCUMENT, 0},
    {"one-16k-64", 1, 16384, 0, 16, 64, DOCUMENT, 0},
};

struct stage {
  struct plm_ops *ops;
  struct plm_batch batch;
  struct plm_chunk_document *documents;
  uint32_t *begins;
  struct plm_attention_shape shape;
  struct plm_interval_mask mask;
  uint64_t pairs;
  int32_t *values, *device_values;
  char *qkv, *dqkv, *out, *dout;
  float *lse;
  size_t part; /* bytes from q to k and from k to v in a row */
};

/* Log-normal lengths, like those of proteins, cut at the end of the chunk. */
static void pack(struct stage *s, const struct scene *scene)
{
  uint32_t count = 0;
  s->documents = must(calloc((size_t)scene->chunks * scene->length, sizeof *s->documents));
  s->begins = must(calloc(scene->chunks + 1, sizeof *s->begins));
  for (uint32_t c = 0; c < scene->chunks; c++) {
    for (uint32_t at = 0; at < scene->length;) {
      const struct plm_philox_words draw = plm_philox(1, count, c, 93);
      const double u = plm_philox_unit(draw.w[0]) + 0x1p-25, v = plm_philox_unit(draw.w[1]);
      const double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
      uint32_t tokens = scene->length - at;
      const double drawn = scene->median * exp(0.6 * normal) + 2;
      if (scene->median > 0 && drawn < tokens) tokens = (uint32_t)drawn;
      s->documents[count++] = (struct plm_chunk_document){.start = at, .tokens = tokens};
      at += tokens;
    }
    s->begins[c + 1] = count;
  }
  s->batch = (struct plm_batch){.chunks = scene->chunks,
                                .max_length = scene->length,
                                .document_begin = s->begins,
                                .documents = s->documents};
}

static void stage_open(struct stage *s, struct plm_ops *ops, const struct scene *scene)
{
  const size_t width = (size_t)scene->heads * (size_t)scene->K;
  const size_t rows = (size_t)scene->chunks * scene->length, bytes = ops->act_bytes;
  *s = (struct stage){.ops = ops,
                      .shape = {.B = (int32_t)scene->chunks,
                                .L = (int32_t)scene->length,
                                .H = scene->heads,
                                .K = scene->K,
                                .row_stride = 3 * scene->heads * scene->K,
                                .scale = 1 / sqrtf((float)scene->K)},
                      .part = width * bytes};
  pack(s, scene);
  const size_t mask_bytes = plm_mask_values(s->shape.B, s->shape.L) * sizeof *s->values;
  s->values = must(malloc(mask_bytes));
  s->device_values = device_bench_buffer(ops, mask_bytes);
  s->pairs = plm_mask_build(&s->batch, 0, scene->kinds, scene->window, 0, s->values,
                            s->device_values, &s->mask);
  ops->upload(ops, s->device_values, s->values, mask_bytes);
  s->qkv = device_bench_random(ops, 3 * rows * width, bytes, 1);
  s->dout = device_bench_random(ops, rows * width, bytes, 2);
  s->dqkv = device_bench_buffer(ops, 3 * rows * width * bytes);
  s->out = device_bench_buffer(ops, rows * width * bytes);
  s->lse = device_bench_buffer(ops, rows * (size_t)scene->heads * sizeof *s->lse);
}

static void stage_close(struct stage *s)
{
  void *const buffers[] = {s->device_values, s->qkv, s->dout, s->dqkv, s->out, s->lse};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) s->ops->release(s->ops, buffers[i]);
  free(s->documents);
  free(s->begins);
  free(s->values);
}

static void forward(void *context)
{
  struct stage *s = context;
  const struct plm_attention_inputs in = plm_attention_inputs_of(s->qkv, s->part);
  s->ops->attention_forward(s->ops, s->out, s->lse, &in, &s->mask, &s->shape);
}

static void backward(void *context)
{
  struct stage *s = context;
  const struct plm_attention_inputs in = plm_attention_inputs_of(s->qkv, s->part);
  const struct plm_attention_gradients to = plm_attention_gradients_of(s->dqkv, s->part);
  s->ops->attention_backward(s->ops, &to, s->dout, s->out, s->lse, &in, &s->mask, &s->shape);
}

static void both(void *context)
{
  forward(context);
  backward(context);
}

/* A hash of the gradients after a forward and a backward pass, which must repeat in a second run.
 */
static uint64_t digest(struct stage *s)
{
  const size_t bytes = (size_t)s->shape.B * (size_t)s->shape.L * 3 * s->part;
  uint64_t *host = must(malloc(bytes)), sum = 0;
  both(s);
  device_case_download(s->ops, host, s->dqkv, bytes);
  for (size_t i = 0; i < bytes / sizeof *host; i++) sum = sum * 0x9e3779b97f4a7c15u + host[i];
  free(host);
  return sum;
}

static void write_mask(const struct stage *s, const char *folder, const char *name)
{
  char path[4096];
  const size_t rows = (size_t)s->shape.B * (size_t)s->shape.L;
  const int32_t head[4] = {s->shape.B, s->shape.L, s->shape.H, s->shape.K};
  int32_t *numbers = must(malloc(rows * sizeof *numbers));
  memset(numbers, 0xff, rows * sizeof *numbers);
  for (uint32_t c = 0; c < s->batch.chunks; c++)
    for (uint32_t d = s->begins[c]; d < s->begins[c + 1]; d++)
      for (uint32_t i = 0; i < s->documents[d].tokens; i++)
        numbers[c * s->batch.max_length + s->documents[d].start + i] = (int32_t)d;
  (void)snprintf(path, sizeof path, "%s/%s.mask", folder, name);
  FILE *file = fopen(path, "wb");
  const bool written = file != NULL && fwrite(head, sizeof head, 1, file) == 1 &&
                       fwrite(numbers, sizeof *numbers, rows, file) == rows &&
                       fwrite(s->values, sizeof *s->values, 2 * rows, file) == 2 * rows;
  if (file == NULL || fclose(file) != 0 || !written) {
    (void)fprintf(stderr, "gpu_attention: cannot write %s\n", path);
    exit(1);
  }
  free(numbers);
}

static void print_time(const char *name, struct device_bench_time time)
{
  printf(", \"%s\": [%.6g, %.6g, %.6g]", name, time.median_s, time.least_s, time.most_s);
}

static void measure(struct plm_ops *ops, const struct scene *scene)
{
  struct stage s;
  stage_open(&s, ops, scene);
  const uint64_t first = digest(&s), second = digest(&s);
  const double work = (double)s.pairs * (double)scene->heads * (double)scene->K;
  printf("{\"scene\": \"%s\", \"B\": %u, \"L\": %u, \"H\": %d, \"K\": %d, \"median\": %u, "
         "\"causal\": %s, \"window\": %u, \"pairs\": %llu, \"forward_flops\": %.9g, "
         "\"backward_flops\": %.9g, \"same_bits\": %s, \"isa\": \"%s\"",
         scene->name, scene->chunks, scene->length, scene->heads, scene->K, scene->median,
         (scene->kinds & PLM_ATTENTION_CAUSAL) != 0 ? "true" : "false", scene->window,
         (unsigned long long)s.pairs, 4 * work, 10 * work, first == second ? "true" : "false",
         ops->isa);
  print_time("forward_s", device_bench_measure(ops, forward, &s, 0.3));
  print_time("backward_s", device_bench_measure(ops, backward, &s, 0.3));
  print_time("both_s", device_bench_measure(ops, both, &s, 0.3));
  printf("}\n");
  (void)fflush(stdout);
  stage_close(&s);
}

/* Writes the masks for the peer. It does not use the device, on which other parts may measure. */
static void write_alone(const struct scene *scene, const char *folder)
{
  struct stage s = {.shape = {.B = (int32_t)scene->chunks,
                              .L = (int32_t)scene->length,
                              .H = scene->heads,
                              .K = scene->K}};
  pack(&s, scene);
  s.values = must(malloc(plm_mask_values(s.shape.B, s.shape.L) * sizeof *s.values));
  (void)plm_mask_build(&s.batch, 0, scene->kinds, scene->window, 0, s.values, s.values, NULL);
  write_mask(&s, folder, scene->name);
  printf("{\"scene\": \"%s\", \"causal\": %s, \"window\": %u, \"one_document\": %s}\n", scene->name,
         (scene->kinds & PLM_ATTENTION_CAUSAL) != 0 ? "true" : "false", scene->window,
         scene->median == 0 ? "true" : "false");
  free(s.documents);
  free(s.begins);
  free(s.values);
}

static struct plm_ops *open_device(void)
{
  struct plm_ops *ops = device_case_open(PLM_PRECISION_BF16, 1);
  ops->tune(ops, true, NULL); /* as training does */
  return ops;
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    (void)fprintf(stderr, "usage: gpu_attention FOLDER [SHRINK [masks]]\n");
    return 2;
  }
  const uint32_t shrink = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
  const bool masks_alone = argc > 3 && strcmp(argv[3], "masks") == 0;
  struct plm_ops *ops = masks_alone ? NULL : open_device();
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
    struct scene scene = scenes[i];
    if (shrink > 1) {
      scene.chunks = scene.chunks > shrink ? scene.chunks / shrink : 1;
      scene.length /= shrink;
      scene.median /= shrink;
      scene.heads = 1;
      scene.window /= shrink;
    }
    if (masks_alone)
      write_alone(&scene, argv[1]);
    else
      measure(ops, &scene);
  }
  if (ops != NULL) ops->close(ops);
  return 0;
}
