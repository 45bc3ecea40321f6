/* Runs the model, and computes maps from what the attention of its blocks reads. */
#include "evaluator/embed/embed_maps.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/architecture.h"
#include "evaluator/embed/contact_map.h"

struct plm_embed_maps {
  struct plm_maps_request request;
  struct plm_attention_map *map;
  float *room;       /* (B, L, 3 D): queries, keys and values of a block */
  int32_t *mask;     /* of the block */
  float *values;     /* (tokens, tokens) of one map */
  size_t value_room; /* floats */
  /* of one run */
  struct plm_sequence_batch *batch;
  const struct plm_batch *chunks;
  const uint32_t *tokens;
  struct plm_contact_sum *sums; /* (count) for contacts */
  uint32_t count;
  plm_embed_maps_put *put;
  void *context;
  plm_status status; /* of the blocks so far */
  struct plm_error *error;
};

plm_status plm_embed_maps_open(const struct plm_maps_request *request, struct plm_embed_maps **maps,
                               struct plm_error *error)
{
  const struct plm_inference *inference = request->inference;
  const struct plm_model_config *config = &inference->config;
  const size_t rows = (size_t)inference->max_chunks * config->max_length;
  struct plm_embed_maps *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->request = *request;
  opened->room = calloc(3 * rows * config->hidden_size, sizeof *opened->room);
  opened->mask =
      calloc(plm_mask_values((int32_t)inference->max_chunks, (int32_t)config->max_length),
             sizeof *opened->mask);
  plm_status status = plm_attention_map_open(inference->ops->threads, &opened->map, error);
  if (status == PLM_OK && (opened->room == NULL || opened->mask == NULL))
    status = plm_error_set(error, PLM_NO_MEMORY, "no memory for the maps of %zu tokens", rows);
  if (status != PLM_OK) {
    plm_embed_maps_close(opened);
    return status;
  }
  *maps = opened;
  return PLM_OK;
}

void plm_embed_maps_close(struct plm_embed_maps *maps)
{
  if (maps == NULL) return;
  plm_attention_map_close(maps->map);
  free(maps->room);
  free(maps->mask);
  free(maps->values);
  free(maps);
}

/* ---- a block --------------------------------------------------------------------------------- */

static struct plm_map_source source_of(const struct plm_embed_maps *maps, uint32_t k,
                                       const struct plm_block_shape *shape,
                                       const struct plm_interval_mask *mask)
{
  const struct plm_model_config *config = &maps->request.inference->config;
  const uint32_t row = plm_sequence_batch_row(maps->batch, k);
  const int64_t width = shape->width;
  return (struct plm_map_source){.queries = maps->room + row * 3 * width,
                                 .keys = maps->room + row * 3 * width + width,
                                 .stride = 3 * width,
                                 .H = (int32_t)config->num_attention_heads,
                                 .K = (int32_t)(shape->width / config->num_attention_heads),
                                 .tokens = (int32_t)maps->tokens[k],
                                 .key_begin = mask->key_begin + row,
                                 .key_end = mask->key_end + row,
                                 .first = (int32_t)(row % maps->chunks->max_length)};
}

/* Where the map at hand goes. */
struct whole_map {
  float *values; /* (tokens, tokens) */
  size_t tokens;
};

static void embed_maps_take(void *context, int32_t head, int32_t row, int32_t rows,
                            const float *values, int64_t padded)
{
  const struct whole_map *whole = context;
  const size_t tokens = whole->tokens;
  (void)head;
  for (int32_t r = 0; r < rows; r++)
    memcpy(whole->values + (size_t)(row + r) * tokens, values + r * padded,
           tokens * sizeof *values);
}

/* Computes and puts the chosen maps of one sequence. */
static plm_status put_attention(struct plm_embed_maps *maps, uint32_t block, uint32_t k,
                                const struct plm_map_source *source)
{
  const struct plm_map_choice *choice = maps->request.choice;
  const size_t tokens = maps->tokens[k], cells = tokens * tokens;
  if (cells > maps->value_room) {
    free(maps->values);
    maps->values = malloc(cells * sizeof *maps->values);
    maps->value_room = maps->values != NULL ? cells : 0;
    if (maps->values == NULL)
      return plm_error_set(maps->error, PLM_NO_MEMORY,
                           "no memory for an attention map of %zu tokens", tokens);
  }
  struct whole_map whole = {maps->values, tokens};
  for (uint32_t i = 0; i < choice->count; i++) {
    const struct plm_map_item *item = &choice->items[i];
    if (item->block != block) continue;
    for (int32_t h = 0; h < item->heads; h++) {
      PLM_TRY(plm_attention_map_run(maps->map, source, item->head + h, 1, embed_maps_take, &whole,
                                    maps->error));
      PLM_TRY(maps->put(maps->context, k, (item->before + (uint64_t)h) * cells, maps->values, cells,
                        maps->error));
    }
  }
  return PLM_OK;
}

static bool block_is_wanted(const struct plm_embed_maps *maps, uint32_t block)
{
  const struct plm_map_choice *choice = maps->request.choice;
  for (uint32_t i = 0; choice != NULL && i < choice->count; i++)
    if (choice->items[i].block == block) return true;
  return choice == NULL;
}

static void embed_maps_on_attention(void *context, uint32_t block)
{
  struct plm_embed_maps *maps = context;
  const struct plm_inference *inference = maps->request.inference;
  const struct plm_model_config *config = &inference->config;
  struct plm_block_shape shape;
  struct plm_interval_mask mask;
  if (maps->status != PLM_OK || !block_is_wanted(maps, block)) return;
  plm_architecture_block(config, block, &shape);
  if (maps->request.visit != NULL && shape.level > 0) return;
  plm_mask_build(maps->chunks, shape.level, config->pattern[shape.entry], inference->window,
                 config->block, maps->mask, maps->mask, &mask);
  for (uint32_t k = 0; k < maps->count && maps->status == PLM_OK; k++) {
    const struct plm_map_source source = source_of(maps, k, &shape, &mask);
    if (maps->request.visit != NULL)
      maps->status = maps->request.visit(maps->context, block, k, &source, maps->map, maps->error);
    else if (maps->request.choice != NULL)
      maps->status = put_attention(maps, block, k, &source);
    else
      maps->status = plm_contact_sum_add(
          &maps->sums[k], maps->map, &source,
          maps->request.weights + (size_t)block * config->num_attention_heads, maps->error);
  }
}

/* ---- a batch --------------------------------------------------------------------------------- */

static plm_status begin_contacts(struct plm_embed_maps *maps, struct plm_error *error)
{
  maps->sums = plm_alloc_zeroed(maps->count + 1, sizeof *maps->sums);
  for (uint32_t k = 0; k < maps->count; k++) {
    PLM_ASSERT(maps->tokens[k] >= 2);
    PLM_TRY(plm_contact_sum_init(&maps->sums[k], (int32_t)maps->tokens[k] - 2, error));
  }
  return PLM_OK;
}

static plm_status put_contacts(struct plm_embed_maps *maps, struct plm_error *error)
{
  for (uint32_t k = 0; k < maps->count; k++) {
    struct plm_contact_sum *sum = &maps->sums[k];
    const uint64_t residues = (uint64_t)sum->residues;
    plm_contact_sum_finish(sum, maps->request.bias);
    PLM_TRY(maps->put(maps->context, k, 0, sum->values, residues * residues, error));
  }
  return PLM_OK;
}

plm_status plm_embed_maps_run(struct plm_embed_maps *maps, struct plm_sequence_batch *batch,
                              const uint32_t *tokens, plm_embed_maps_put *put, void *context,
                              struct plm_error *error)
{
  const bool contacts = maps->request.choice == NULL && maps->request.visit == NULL;
  const struct plm_state_taps taps = {
      .room = maps->room, .on_attention = embed_maps_on_attention, .context = maps};
  maps->batch = batch;
  maps->chunks = plm_sequence_batch_finish(batch);
  maps->tokens = tokens;
  maps->count = plm_sequence_batch_count(batch);
  maps->put = put;
  maps->context = context;
  maps->status = PLM_OK;
  maps->error = error;
  plm_status status = contacts ? begin_contacts(maps, error) : PLM_OK;
  if (status == PLM_OK)
    status = plm_inference_run_states(maps->request.inference, maps->chunks,
                                      plm_sequence_batch_inputs(batch), &taps, error);
  if (status == PLM_OK) status = maps->status;
  if (status == PLM_OK && contacts) status = put_contacts(maps, error);
  for (uint32_t k = 0; contacts && k < maps->count; k++) plm_contact_sum_deinit(&maps->sums[k]);
  free(maps->sums);
  maps->sums = NULL;
  return status;
}
