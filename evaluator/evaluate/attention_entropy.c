/* The entropy of attention, from the queries and keys of each block. */
#include "evaluator/evaluate/attention_entropy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/architecture.h"

enum { LANES = 8 };

struct plm_attention_entropy {
  struct plm_inference *inference;
  const struct plm_batch *batch; /* what is measured */
  struct plm_layer_entropy *layers;
  uint32_t count;
  float *room;        /* (B, L, 3 D): queries, keys and values of a block */
  int32_t *mask;      /* of the block */
  int32_t *real;      /* (B L) its positions with keys */
  double *logits;     /* (L) of a query */
  uint32_t *layer_of; /* by block */
};

/* "plm.encoder.3." -> "encoder.3" */
static void name_layer(const char *prefix, char name[40])
{
  if (strncmp(prefix, "plm.", 4) == 0) prefix += 4;
  const size_t length = strlen(prefix);
  PLM_ASSERT(length > 0);
  snprintf(name, 40, "%.*s", (int)length - 1, prefix);
}

static uint32_t chunks_of(const struct plm_inference *inference)
{
  const uint32_t wanted = PLM_ENTROPY_TOKENS / inference->config.max_length;
  if (wanted == 0) return 1;
  return wanted < inference->max_chunks ? wanted : inference->max_chunks;
}

static plm_status attention_entropy_allocate(struct plm_attention_entropy *entropy,
                                             struct plm_error *error)
{
  const struct plm_model_config *config = &entropy->inference->config;
  const uint32_t blocks = plm_architecture_blocks(config);
  const uint32_t chunks = chunks_of(entropy->inference);
  const size_t tokens = (size_t)chunks * config->max_length;
  entropy->layers = plm_alloc_zeroed(blocks, sizeof *entropy->layers);
  entropy->layer_of = plm_alloc_zeroed(blocks, sizeof *entropy->layer_of);
  entropy->room = calloc(3 * tokens * config->hidden_size, sizeof *entropy->room);
  entropy->mask =
      calloc(plm_mask_values((int32_t)chunks, (int32_t)config->max_length), sizeof *entropy->mask);
  entropy->real = calloc(tokens, sizeof *entropy->real);
  entropy->logits = calloc(config->max_length, sizeof *entropy->logits);
  if (entropy->room == NULL || entropy->mask == NULL || entropy->real == NULL ||
      entropy->logits == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the entropy of attention");
  for (uint32_t i = 0; i < blocks; i++) {
    struct plm_block_shape shape;
    plm_architecture_block(config, i, &shape);
    if (shape.kind == PLM_BLOCK_BOTTLENECK) continue;
    entropy->layer_of[i] = entropy->count;
    name_layer(shape.prefix, entropy->layers[entropy->count++].layer);
  }
  return PLM_OK;
}

plm_status plm_attention_entropy_open(struct plm_inference *inference,
                                      struct plm_attention_entropy **entropy,
                                      struct plm_error *error)
{
  struct plm_attention_entropy *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->inference = inference;
  const plm_status status = attention_entropy_allocate(opened, error);
  if (status != PLM_OK) {
    plm_attention_entropy_close(opened);
    return status;
  }
  *entropy = opened;
  return PLM_OK;
}

void plm_attention_entropy_close(struct plm_attention_entropy *entropy)
{
  if (entropy == NULL) return;
  free(entropy->layers);
  free(entropy->layer_of);
  free(entropy->room);
  free(entropy->mask);
  free(entropy->real);
  free(entropy->logits);
  free(entropy);
}

/* ---- one block ------------------------------------------------------------------------------- */

/* Where a block's queries and keys lie. */
struct heads {
  int32_t H, K;
  const float *queries, *keys; /* rows of 3 H K floats */
};

static double dot(const float *x, const float *y, int32_t n)
{
  float sums[LANES] = {0};
  for (int32_t i = 0; i < n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) sums[lane] += x[i + lane] * y[i + lane];
  double sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += (double)sums[lane];
  return sum;
}

/* The keys that a query sees: `count` rows from `first` on. */
struct seen {
  int64_t first;
  int32_t count;
};

/* Of head h of the query in a row. With m the largest logit and z = sum of exp(s - m), the entropy
 * is log z - sum of exp(s - m) (s - m) / z. */
static double entropy_of(const struct heads *heads, int32_t h, int64_t row, struct seen seen,
                         double *logits)
{
  const double scale = 1 / sqrt(heads->K);
  const int64_t stride = 3 * (int64_t)heads->H * heads->K, column = (int64_t)h * heads->K;
  const float *query = heads->queries + row * stride + column;
  const float *key = heads->keys + seen.first * stride + column;
  double most = -INFINITY, sum = 0, weighted = 0;
  for (int32_t i = 0; i < seen.count; i++) {
    logits[i] = scale * dot(query, key + i * stride, heads->K);
    most = fmax(most, logits[i]);
  }
  for (int32_t i = 0; i < seen.count; i++) {
    const double power = exp(logits[i] - most);
    sum += power;
    weighted += power * (logits[i] - most);
  }
  return log(sum) - weighted / sum;
}

static double mean_entropy(const struct plm_attention_entropy *entropy, const struct heads *heads,
                           const struct plm_interval_mask *mask)
{
  const int64_t rows = (int64_t)mask->B * mask->L;
  int64_t real = 0;
  for (int32_t row = 0; row < rows; row++)
    if (mask->key_end[row] > mask->key_begin[row]) entropy->real[real++] = row;
  const int64_t queries = real < PLM_ENTROPY_QUERIES ? real : PLM_ENTROPY_QUERIES;
  double sum = 0;
  for (int64_t i = 0; i < queries; i++) {
    const int64_t row = entropy->real[i * real / queries];
    const struct seen seen = {.first = row / mask->L * mask->L + mask->key_begin[row],
                              .count = mask->key_end[row] - mask->key_begin[row]};
    for (int32_t h = 0; h < heads->H; h++) sum += entropy_of(heads, h, row, seen, entropy->logits);
  }
  return queries > 0 ? sum / (double)(queries * heads->H) : NAN;
}

static void attention_entropy_on_block(void *context, uint32_t block)
{
  struct plm_attention_entropy *entropy = context;
  const struct plm_inference *inference = entropy->inference;
  const struct plm_model_config *config = &inference->config;
  struct plm_block_shape shape;
  struct plm_interval_mask mask;
  plm_architecture_block(config, block, &shape);
  plm_mask_build(entropy->batch, shape.level, config->pattern[shape.entry], inference->window,
                 config->block, entropy->mask, entropy->mask, &mask);
  const int32_t H = (int32_t)config->num_attention_heads, K = (int32_t)shape.width / H;
  PLM_ASSERT(K % LANES == 0); /* so `dot` has nothing left over */
  const struct heads heads = {
      .H = H, .K = K, .queries = entropy->room, .keys = entropy->room + (size_t)H * (size_t)K};
  entropy->layers[entropy->layer_of[block]].entropy = mean_entropy(entropy, &heads, &mask);
}

plm_status plm_attention_entropy_measure(struct plm_attention_entropy *entropy,
                                         const struct plm_batch *batch, const int32_t *inputs,
                                         struct plm_error *error)
{
  struct plm_batch part = *batch;
  const uint32_t most = chunks_of(entropy->inference);
  if (part.chunks > most) part.chunks = most;
  const struct plm_state_taps taps = {
      .room = entropy->room, .on_attention = attention_entropy_on_block, .context = entropy};
  entropy->batch = &part;
  const plm_status status =
      plm_inference_run_states(entropy->inference, &part, inputs, &taps, error);
  entropy->batch = NULL;
  return status;
}

const struct plm_layer_entropy *plm_attention_entropies(const struct plm_attention_entropy *entropy,
                                                        uint32_t *count)
{
  *count = entropy != NULL ? entropy->count : 0;
  return entropy != NULL ? entropy->layers : NULL;
}
