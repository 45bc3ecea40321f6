/* Makes batches and weights for tests of the model. */
#include "tests/support/cases/case_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/architecture.h"
#include "tests/support/harness/must.h"

struct stream {
  uint64_t state;
};

/* splitmix64 */
static uint64_t next_word(struct stream *stream)
{
  uint64_t z = stream->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static double next_unit(struct stream *stream)
{
  return ((double)(next_word(stream) >> 12) + 0.5) * 0x1p-52;
}

static double next_normal(struct stream *stream)
{
  const double radius = sqrt(-2.0 * log(next_unit(stream)));
  return radius * cos(2.0 * M_PI * next_unit(stream));
}

void case_documents_draw(struct case_documents *documents, const uint32_t *lengths,
                         uint32_t vocab_size, uint64_t seed)
{
  struct stream stream = {seed};
  memset(documents, 0, sizeof *documents);
  for (; lengths[documents->count] != 0; documents->count++) {
    PLM_ASSERT(documents->count < CASE_MAX_DOCUMENTS);
    const uint32_t begin = documents->begin[documents->count];
    const uint32_t length = lengths[documents->count];
    PLM_ASSERT(begin + length <= CASE_MAX_TOKENS);
    for (uint32_t i = begin; i < begin + length; i++) {
      const bool first = i == begin, last = i + 1 == begin + length && length > 1;
      documents->ids[i] = first ? 0 : last ? 2 : (int32_t)(4 + next_word(&stream) % 20);
      documents->inputs[i] = documents->ids[i];
      documents->labels[i] = -1;
      documents->weights[i] = (float)(0.5 + next_unit(&stream));
      if (first || last || next_unit(&stream) > 0.4) continue;
      documents->labels[i] = documents->ids[i];
      if (next_unit(&stream) < 0.8) documents->inputs[i] = (int32_t)vocab_size - 1;
    }
    documents->begin[documents->count + 1] = begin + length;
  }
}

static void batch_allocate(struct case_batch *placed, uint32_t chunks, uint32_t L,
                           uint32_t documents)
{
  const size_t n = (size_t)chunks * L;
  *placed =
      (struct case_batch){.tokens = must(malloc(n)),
                          .document_begin = must(calloc(chunks + 1, sizeof(uint32_t))),
                          .documents = must(calloc(documents, sizeof(struct plm_chunk_document))),
                          .inputs = must(malloc(n * sizeof(int32_t))),
                          .positions = must(malloc(n * sizeof(int32_t))),
                          .labels = must(malloc(n * sizeof(int32_t))),
                          .weights = must(malloc(n * sizeof(float)))};
  placed->batch = (struct plm_batch){.chunks = chunks,
                                     .max_length = L,
                                     .token_bytes = 1,
                                     .tokens = placed->tokens,
                                     .document_begin = placed->document_begin,
                                     .documents = placed->documents};
  placed->targets = (struct plm_targets){.inputs = placed->inputs,
                                         .positions = placed->positions,
                                         .labels = placed->labels,
                                         .weights = placed->weights};
}

void case_batch_place(struct case_batch *placed, const struct case_documents *documents,
                      uint32_t max_length, uint32_t alignment, bool separate)
{
  batch_allocate(placed, documents->count, max_length, documents->count);
  const size_t n = (size_t)documents->count * max_length;
  memset(placed->tokens, 1, n); /* <pad> */
  for (size_t i = 0; i < n; i++) placed->inputs[i] = 1;
  uint32_t chunk = 0, at = 0;
  for (uint32_t d = 0; d < documents->count; d++) {
    const uint32_t begin = documents->begin[d], tokens = documents->begin[d + 1] - begin;
    at = (at + alignment - 1) / alignment * alignment;
    if (d > 0 && (separate || at + tokens > max_length)) {
      chunk++;
      at = 0;
    }
    PLM_ASSERT(at + tokens <= max_length);
    placed->documents[d] = (struct plm_chunk_document){
        .number = d, .start = at, .tokens = tokens, .residues = tokens - 2};
    for (uint32_t i = 0; i < tokens; i++) {
      const size_t place = (size_t)chunk * max_length + at + i;
      placed->tokens[place] = (uint8_t)documents->ids[begin + i];
      placed->inputs[place] = documents->inputs[begin + i];
      if (documents->labels[begin + i] < 0) continue;
      const uint32_t row = placed->targets.rows++;
      placed->positions[row] = (int32_t)place;
      placed->labels[row] = documents->labels[begin + i];
      placed->weights[row] = documents->weights[begin + i];
    }
    at += tokens;
    placed->document_begin[chunk + 1] = d + 1;
  }
  placed->batch.chunks = chunk + 1;
}

void case_batch_part(struct case_batch *part, const struct case_batch *whole, uint32_t first,
                     uint32_t chunks)
{
  const uint32_t L = whole->batch.max_length;
  const uint32_t begin = whole->document_begin[first];
  const uint32_t documents = whole->document_begin[first + chunks] - begin;
  batch_allocate(part, chunks, L, documents);
  memcpy(part->tokens, whole->tokens + (size_t)first * L, (size_t)chunks * L);
  memcpy(part->inputs, whole->inputs + (size_t)first * L, (size_t)chunks * L * sizeof(int32_t));
  memcpy(part->documents, whole->documents + begin, documents * sizeof *part->documents);
  for (uint32_t i = 0; i <= chunks; i++)
    part->document_begin[i] = whole->document_begin[first + i] - begin;
  const int32_t low = (int32_t)(first * L), high = (int32_t)((first + chunks) * L);
  for (uint32_t i = 0; i < whole->targets.rows; i++) {
    if (whole->positions[i] < low || whole->positions[i] >= high) continue;
    const uint32_t row = part->targets.rows++;
    part->positions[row] = whole->positions[i] - low;
    part->labels[row] = whole->labels[i];
    part->weights[row] = whole->weights[i];
  }
}

void case_batch_free(struct case_batch *placed)
{
  free(placed->tokens);
  free(placed->document_begin);
  free(placed->documents);
  free(placed->inputs);
  free(placed->positions);
  free(placed->labels);
  free(placed->weights);
}

struct plm_model_config case_config(enum plm_architecture architecture, uint32_t layers,
                                    uint32_t max_length)
{
  struct plm_model_config config = {.architecture = architecture,
                                    .hidden_size = architecture == PLM_PATCH_UNET ? 64 : 32,
                                    .num_attention_heads = 2,
                                    .num_hidden_layers = layers,
                                    .num_unet_layers = layers,
                                    .num_extra_layers = architecture == PLM_PATCH_UNET ? 1 : 0,
                                    .expansion_ratio = 2.0,
                                    .soft_logit_cap = 16.0,
                                    .pattern = {PLM_ATTENTION_DOCUMENT},
                                    .pattern_count = 1,
                                    .window_start = max_length,
                                    .window_end = max_length,
                                    .max_length = max_length,
                                    .vocab_size = 33};
  const struct plm_architecture_rules *rules = plm_architecture_rules(architecture);
  if (!rules->published) return config;
  config.num_unet_layers = 0;
  config.expansion_ratio = config.soft_logit_cap = 0;
  config.intermediate_size = 48;
  config.layer_norm_eps = rules->layer_norm_eps;
  config.tie_embeddings = rules->ties_embeddings;
  config.token_dropout = rules->token_dropout;
  config.max_positions = max_length;
  if (rules->vocab_size != 0) config.vocab_size = rules->vocab_size;
  return config;
}

void case_alternate(struct plm_model_config *config, unsigned kinds)
{
  if (plm_architecture_rules(config->architecture)->published) return;
  config->pattern[1] = (uint8_t)(PLM_ATTENTION_DOCUMENT | kinds);
  config->pattern_count = 2;
}

static bool is_small(const struct plm_parameter *parameter)
{
  return parameter->initialiser == PLM_INIT_SMALL || parameter->initialiser == PLM_INIT_SMALL_PAD;
}

void case_weights(const struct plm_parameter *table, size_t count, uint64_t seed, float *values)
{
  plm_model_initialise(table, count, seed, values);
  struct stream stream = {seed};
  for (size_t i = 0; i < count; i++) {
    double more = 0;
    if (table[i].group == PLM_GROUP_SCALAR || (table[i].ndim == 1 && is_small(&table[0])))
      more = 0.3;
    else if (table[i].ndim == 2 && table[i].initialiser == PLM_INIT_ZERO)
      more = 0.05;
    else if (is_small(&table[i]))
      more = 0.2;
    for (size_t e = 0; more != 0 && e < table[i].count; e++)
      values[table[i].offset + e] += (float)(more * next_normal(&stream));
  }
}

double case_relative(const struct plm_parameter *parameter, const float *a, const double *b)
{
  double difference = 0.0, norm = 0.0;
  for (size_t e = parameter->offset; e < parameter->offset + parameter->count; e++) {
    difference += ((double)a[e] - b[e]) * ((double)a[e] - b[e]);
    norm += b[e] * b[e];
  }
  return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

double case_relative_float(const struct plm_parameter *parameter, const float *a, const float *b)
{
  double difference = 0.0, norm = 0.0;
  for (size_t e = parameter->offset; e < parameter->offset + parameter->count; e++) {
    difference += ((double)a[e] - b[e]) * ((double)a[e] - b[e]);
    norm += (double)b[e] * b[e];
  }
  return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}
