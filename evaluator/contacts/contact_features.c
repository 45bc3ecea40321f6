/* Runs the model over one protein at a time, and takes the maps of its blocks. */
#include "evaluator/contacts/contact_features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/inference/sequence_batch.h"
#include "common/model/architecture.h"
#include "evaluator/embed/embed_maps.h"

enum { NO_SLOT = -1 };

struct plm_contact_features {
  struct plm_inference *inference;
  struct plm_sequence_batch *batch;
  struct plm_embed_maps *maps;
  int32_t *tokens; /* of the protein */
  int32_t *slots;  /* (blocks) the number of a block among those with maps, or NO_SLOT */
  uint32_t H, blocks;
  float *map;   /* (tokens, tokens) of one head */
  double *sums; /* (residues) of the rows of the symmetric map */
  /* of one protein */
  uint32_t n;
  float *columns; /* NULL: weights and sum */
  size_t rows, first;
  const float *weights;
  struct plm_contact_sum *sum;
};

size_t plm_contact_pairs(uint32_t n, uint32_t separation)
{
  if (n <= separation) return 0;
  const size_t apart = n - separation;
  return apart * (apart + 1) / 2;
}

uint32_t plm_contact_features_heads(const struct plm_contact_features *features)
{
  return features->blocks * features->H;
}

static void take_rows(void *context, int32_t head, int32_t row, int32_t rows, const float *values,
                      int64_t padded)
{
  const struct plm_contact_features *features = context;
  const size_t tokens = features->n + 2;
  (void)head;
  for (int32_t r = 0; r < rows; r++)
    memcpy(features->map + (size_t)(row + r) * tokens, values + r * padded,
           tokens * sizeof *values);
}

/* The symmetric map without <cls> and <eos>. */
static double symmetric(const struct plm_contact_features *features, size_t i, size_t j)
{
  const size_t tokens = features->n + 2;
  return (double)features->map[(i + 1) * tokens + j + 1] +
         (double)features->map[(j + 1) * tokens + i + 1];
}

static plm_status write_column(struct plm_contact_features *features, float *column,
                               struct plm_error *error)
{
  const size_t n = features->n;
  double total = 0;
  for (size_t i = 0; i < n; i++) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += symmetric(features, i, j);
    features->sums[i] = sum;
    total += sum;
  }
  if (!isfinite(total))
    return plm_error_set(error, PLM_NOT_FINITE, "the model's attention is not finite");
  const double factor = total > 0 ? 1 / total : 0;
  for (size_t i = 0; i < n; i++)
    for (size_t j = i + PLM_CONTACT_SEPARATION; j < n; j++)
      *column++ =
          (float)(symmetric(features, i, j) - features->sums[i] * features->sums[j] * factor);
  return PLM_OK;
}

static plm_status visit_block(void *context, uint32_t block, uint32_t k,
                              const struct plm_map_source *source, struct plm_attention_map *map,
                              struct plm_error *error)
{
  struct plm_contact_features *features = context;
  const size_t slot = (size_t)features->slots[block];
  PLM_ASSERT(k == 0 && features->slots[block] != NO_SLOT);
  if (features->columns == NULL)
    return plm_contact_sum_add(features->sum, map, source, features->weights + slot * features->H,
                               error);
  for (uint32_t h = 0; h < features->H; h++) {
    float *column = features->columns + (slot * features->H + h) * features->rows + features->first;
    PLM_TRY(plm_attention_map_run(map, source, (int32_t)h, 1, take_rows, features, error));
    PLM_TRY(write_column(features, column, error));
  }
  return PLM_OK;
}

static plm_status run_protein(struct plm_contact_features *features,
                              const struct plm_contact_protein *protein, uint32_t n,
                              struct plm_error *error)
{
  const struct plm_tokenizer *tokenizer = features->inference->tokenizer;
  const uint32_t count = n + 2;
  PLM_ASSERT(n <= protein->length);
  features->tokens[0] = tokenizer->cls;
  for (uint32_t i = 0; i < n; i++)
    features->tokens[1 + i] = plm_tokenizer_encode(tokenizer, protein->residues[i]);
  features->tokens[n + 1] = tokenizer->eos;
  features->n = n;
  plm_sequence_batch_reset(features->batch);
  const bool added = plm_sequence_batch_add(features->batch, features->tokens, count);
  PLM_ASSERT(added);
  const plm_status status =
      plm_embed_maps_run(features->maps, features->batch, &count, NULL, features, error);
  if (status == PLM_NOT_FINITE) plm_error_where(error, "%s", protein->name);
  return status;
}

plm_status plm_contact_features_write(struct plm_contact_features *features,
                                      const struct plm_contact_protein *protein, uint32_t n,
                                      float *columns, size_t rows, size_t first,
                                      struct plm_error *error)
{
  features->columns = columns;
  features->rows = rows;
  features->first = first;
  return run_protein(features, protein, n, error);
}

plm_status plm_contact_features_sum(struct plm_contact_features *features,
                                    const struct plm_contact_protein *protein, uint32_t n,
                                    const float *weights, struct plm_contact_sum *sum,
                                    struct plm_error *error)
{
  features->columns = NULL;
  features->weights = weights;
  features->sum = sum;
  return run_protein(features, protein, n, error);
}

static plm_status number_blocks(struct plm_contact_features *features, struct plm_error *error)
{
  const struct plm_model_config *config = &features->inference->config;
  const uint32_t count = plm_architecture_blocks(config);
  features->H = config->num_attention_heads;
  features->slots = plm_alloc_zeroed(count + 1, sizeof *features->slots);
  for (uint32_t i = 0; i < count; i++) {
    struct plm_block_shape shape;
    plm_architecture_block(config, i, &shape);
    const bool has_maps = shape.kind != PLM_BLOCK_BOTTLENECK && shape.level == 0;
    features->slots[i] = has_maps ? (int32_t)features->blocks++ : NO_SLOT;
  }
  if (features->blocks > 0) return PLM_OK;
  return plm_error_set(error, PLM_UNSUPPORTED,
                       "no block of this model has attention between single residues");
}

static plm_status open_features(struct plm_contact_features *features, uint32_t residues,
                                struct plm_error *error)
{
  struct plm_inference *inference = features->inference;
  const size_t tokens = (size_t)residues + 2;
  const struct plm_maps_request request = {.inference = inference, .visit = visit_block};
  PLM_TRY(number_blocks(features, error));
  features->tokens = malloc(tokens * sizeof *features->tokens);
  features->map = malloc(tokens * tokens * sizeof *features->map);
  features->sums = malloc(tokens * sizeof *features->sums);
  if (features->tokens == NULL || features->map == NULL || features->sums == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the maps of %u residues", residues);
  PLM_TRY(plm_embed_maps_open(&request, &features->maps, error));
  return plm_sequence_batch_open(&inference->config, inference->tokenizer->pad,
                                 inference->max_chunks, &features->batch, error);
}

plm_status plm_contact_features_open(struct plm_inference *inference, uint32_t residues,
                                     struct plm_contact_features **features,
                                     struct plm_error *error)
{
  struct plm_contact_features *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->inference = inference;
  const plm_status status = open_features(opened, residues, error);
  if (status != PLM_OK) {
    plm_contact_features_close(opened);
    return status;
  }
  *features = opened;
  return PLM_OK;
}

void plm_contact_features_close(struct plm_contact_features *features)
{
  if (features == NULL) return;
  plm_sequence_batch_close(features->batch);
  plm_embed_maps_close(features->maps);
  free(features->tokens);
  free(features->slots);
  free(features->map);
  free(features->sums);
  free(features);
}
