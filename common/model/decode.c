/* Incremental decoding: see decode.h. The rows run through the blocks of model_forward.c. The cache
 * holds keys and values as qkv_prepare leaves them: (block, keys | values, slot, head, position,
 * K). */
#include "common/model/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/model_state.h"

struct plm_decode {
  struct plm_model *model;
  struct plm_decode_options options;
  int64_t K;
  char *cache;          /* device */
  size_t part_bytes;    /* the keys, or the values, of one block */
  uint32_t *filled;     /* (slots) how many positions are in the cache */
  float *cosine, *sine; /* host, (capacity, K/2): of all positions */
  float *rotary;        /* host, (rows, K/2) twice: the rows' cosines, then their sines */
  float *device_rotary;
  int32_t *numbers; /* host, arrays of `rows`: tokens, slots, positions, key_begin of each entry */
  int32_t *device_numbers;
};

static size_t part_bytes(const struct plm_model_config *config, size_t act_bytes,
                         const struct plm_decode_options *options)
{
  return (size_t)options->slots * options->capacity * config->hidden_size * act_bytes;
}

static size_t cache_bytes(const struct plm_model_config *config, size_t act_bytes,
                          const struct plm_decode_options *options)
{
  return 2 * (size_t)config->num_hidden_layers * part_bytes(config, act_bytes, options);
}

uint64_t plm_decode_memory(const struct plm_model_config *config, size_t act_bytes,
                           const struct plm_decode_options *options)
{
  return cache_bytes(config, act_bytes, options);
}

static plm_status decode_check_model(const struct plm_model *model, struct plm_error *error)
{
  const struct plm_model_config *config = &model->config;
  if (model->ops->attention_cached == NULL)
    return plm_error_set(error, PLM_UNSUPPORTED, "the %s backend has no cached attention",
                         model->ops->name);
  const struct plm_architecture_rules *rules = plm_architecture_rules(config->architecture);
  const char *name = plm_architecture_name(config->architecture);
  if (rules->merges)
    return plm_error_set(error, PLM_UNSUPPORTED,
                         "a %s merges tokens with later ones, so it cannot generate token by token",
                         name);
  if (rules->published)
    return plm_error_set(
        error, PLM_UNSUPPORTED,
        "every layer of %s sees the whole sequence, so it cannot generate token by token", name);
  for (uint32_t e = 0; e < config->pattern_count; e++) {
    if (config->pattern[e] & PLM_ATTENTION_CAUSAL) continue;
    char mask[64];
    plm_attention_kind_name(config->pattern[e], mask);
    return plm_error_set(error, PLM_UNSUPPORTED,
                         "attention.pattern has \"%s\", which sees later positions", mask);
  }
  return PLM_OK;
}

static plm_status decode_allocate_buffers(struct plm_decode *decode, struct plm_error *error)
{
  struct plm_model *model = decode->model;
  struct plm_ops *ops = model->ops;
  const struct plm_decode_options *options = &decode->options;
  const size_t half = (size_t)decode->K / 2, rows = options->rows;
  const size_t table_bytes = options->capacity * half * sizeof(float);
  const size_t numbers = (3 + model->config.pattern_count) * rows;
  decode->filled = plm_alloc_zeroed(options->slots, sizeof *decode->filled);
  decode->cosine = malloc(table_bytes);
  decode->sine = malloc(table_bytes);
  decode->rotary = malloc(2 * rows * half * sizeof(float));
  decode->numbers = malloc(numbers * sizeof *decode->numbers);
  if (decode->cosine == NULL || decode->sine == NULL || decode->rotary == NULL ||
      decode->numbers == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory to decode %zu rows of %u positions", rows,
                         options->capacity);
  ops->download(ops, decode->cosine, model->rotary[0].cosine, table_bytes);
  ops->download(ops, decode->sine, model->rotary[0].sine, table_bytes);
  PLM_TRY(ops->synchronize(ops, error));
  PLM_TRY(
      ops->allocate(ops, 2 * rows * half * sizeof(float), (void **)&decode->device_rotary, error));
  PLM_TRY(ops->allocate(ops, numbers * sizeof(int32_t), (void **)&decode->device_numbers, error));
  return ops->allocate(ops, cache_bytes(&model->config, model->act_bytes, options),
                       (void **)&decode->cache, error);
}

plm_status plm_decode_open(struct plm_model *model, const struct plm_decode_options *options,
                           struct plm_decode **decode, struct plm_error *error)
{
  const struct plm_model_config *config = &model->config;
  PLM_ASSERT(!model->options.training && options->slots > 0 && options->capacity > 0);
  PLM_ASSERT(options->capacity <= config->max_length && options->rows > 0);
  PLM_ASSERT(options->rows <= (uint64_t)model->options.max_chunks * config->max_length);
  PLM_TRY(decode_check_model(model, error));
  struct plm_decode *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->model = model;
  opened->options = *options;
  opened->K = config->hidden_size / config->num_attention_heads;
  opened->part_bytes = part_bytes(config, model->act_bytes, options);
  const plm_status status = decode_allocate_buffers(opened, error);
  if (status != PLM_OK) {
    plm_decode_close(opened);
    return status;
  }
  *decode = opened;
  return PLM_OK;
}

void plm_decode_close(struct plm_decode *decode)
{
  if (decode == NULL) return;
  struct plm_ops *ops = decode->model->ops;
  if (decode->cache != NULL) ops->release(ops, decode->cache);
  if (decode->device_numbers != NULL) ops->release(ops, decode->device_numbers);
  if (decode->device_rotary != NULL) ops->release(ops, decode->device_rotary);
  free(decode->numbers);
  free(decode->rotary);
  free(decode->sine);
  free(decode->cosine);
  free(decode->filled);
  free(decode);
}

/* The first position that the row at `position` sees, as if its sequence were the only one in the
 * chunk (doc/model.md#attention-masks). */
static uint32_t first_key(const struct plm_decode *decode, uint32_t entry, uint32_t position)
{
  const struct plm_model_config *config = &decode->model->config;
  const uint32_t window = decode->options.window;
  uint32_t first = 0;
  if ((config->pattern[entry] & PLM_ATTENTION_LOCAL) && position >= window)
    first = position - window + 1;
  if (config->pattern[entry] & PLM_ATTENTION_BLOCK) {
    const uint32_t block = position - position % config->block;
    if (block > first) first = block;
  }
  return first;
}

/* Uploads the tokens, slots, positions, first keys and rotary angles of the rows. */
static void lay_out_rows(struct plm_decode *decode, const struct plm_decode_row *rows,
                         uint32_t count)
{
  struct plm_ops *ops = decode->model->ops;
  const uint32_t entries = decode->model->config.pattern_count;
  const size_t half = (size_t)decode->K / 2;
  int32_t *tokens = decode->numbers, *slots = tokens + count, *positions = slots + count;
  for (uint32_t n = 0; n < count; n++) {
    const uint32_t position = rows[n].position;
    tokens[n] = rows[n].token;
    slots[n] = (int32_t)rows[n].slot;
    positions[n] = (int32_t)position;
    for (uint32_t e = 0; e < entries; e++)
      positions[(e + 1) * count + n] = (int32_t)first_key(decode, e, position);
    memcpy(decode->rotary + n * half, decode->cosine + position * half, half * sizeof(float));
    memcpy(decode->rotary + (count + n) * half, decode->sine + position * half,
           half * sizeof(float));
  }
  ops->upload(ops, decode->model->tokens, tokens, count * sizeof *tokens);
  ops->upload(ops, decode->device_numbers, decode->numbers,
              (size_t)(3 + entries) * count * sizeof *tokens);
  ops->upload(ops, decode->device_rotary, decode->rotary, 2 * count * half * sizeof(float));
}

static plm_status check_rows(const struct plm_decode *decode, const struct plm_decode_row *rows,
                             uint32_t count, struct plm_error *error)
{
  const uint32_t V = decode->model->config.vocab_size;
  PLM_ASSERT(count > 0 && count <= decode->options.rows);
  for (uint32_t n = 0; n < count; n++) {
    PLM_ASSERT(rows[n].slot < decode->options.slots);
    PLM_ASSERT(rows[n].position < decode->options.capacity);
    if ((uint32_t)rows[n].token >= V)
      return plm_error_set(error, PLM_CORRUPT, "token %d is outside the vocabulary of %u",
                           rows[n].token, V);
  }
  for (uint32_t n = 0; n < count; n++) {
    PLM_ASSERT(rows[n].position <= decode->filled[rows[n].slot]);
    decode->filled[rows[n].slot] = rows[n].position + 1;
  }
  return PLM_OK;
}

/* The rows that lay_out_rows uploaded, in the form that the model's blocks take. */
static struct decode_pass decode_pass_of(const struct plm_decode *decode, uint32_t count)
{
  const int64_t H = decode->model->config.num_attention_heads, K = decode->K, N = count;
  const int32_t *numbers = decode->device_numbers;
  return (struct decode_pass){.rows = {.rows = N,
                                       .H = H,
                                       .K = K,
                                       .row_stride = 3 * H * K,
                                       .capacity = decode->options.capacity,
                                       .scale = (float)(1.0 / sqrt((double)K)),
                                       .slots = numbers + N,
                                       .positions = numbers + 2 * N,
                                       .key_begin = numbers + 3 * N},
                              .cosine = decode->device_rotary,
                              .sine = decode->device_rotary + N * (K / 2),
                              .cache = decode->cache,
                              .part_bytes = decode->part_bytes};
}

plm_status plm_decode_run(struct plm_decode *decode, const struct plm_decode_row *rows,
                          uint32_t row_count, const int32_t *wanted, uint32_t count, float *logits,
                          struct plm_error *error)
{
  struct plm_model *model = decode->model;
  struct plm_ops *ops = model->ops;
  PLM_TRY(check_rows(decode, rows, row_count, error));
  lay_out_rows(decode, rows, row_count);
  const struct decode_pass cached = decode_pass_of(decode, row_count);
  struct model_pass pass = {.B = (int32_t)row_count, .L = 1, .decode = &cached};
  if (wanted == NULL) count = row_count;
  plm_model_pass_asks(model, &pass, wanted, count);
  plm_model_blocks_forward(model, &pass);
  if (count > 0) {
    plm_model_head_forward(model, &pass, (float)model->config.soft_logit_cap);
    ops->download(ops, logits, model->logits,
                  (size_t)count * model->config.vocab_size * sizeof(float));
  }
  return ops->synchronize(ops, error);
}
