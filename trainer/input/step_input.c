/* Fills the inputs of steps on the host. */
#include "trainer/input/step_input.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "trainer/optimizer/schedule.h"

enum { ALIGNMENT = 256 }; /* bytes, of each part of a block */

static size_t step_input_aligned(size_t bytes)
{
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint32_t plm_step_micros(const struct plm_step_shape *shape)
{
  const uint32_t chunks = shape->step_chunks / shape->shares;
  return shape->shares * ((chunks + shape->micro_chunks - 1) / shape->micro_chunks);
}

struct plm_micro_layout plm_step_micro_layout(const struct plm_step_shape *shape)
{
  const uint32_t chunks = shape->micro_chunks, length = shape->max_length;
  struct plm_micro_layout layout = {0};
  layout.draws =
      step_input_aligned((size_t)chunks * length * shape->objective->masking.token_bytes);
  layout.ends = layout.draws + step_input_aligned(chunks * sizeof(struct plm_chunk_draw));
  layout.masks =
      layout.ends + step_input_aligned(plm_objective_end_words(chunks, length) * sizeof(uint32_t));
  layout.labels = layout.masks + step_input_aligned(plm_masks_values(shape->model, chunks, length) *
                                                    sizeof(int32_t));
  layout.of_labels = plm_label_layout(shape->model, chunks, length);
  layout.adapter_keys = layout.labels + step_input_aligned(layout.of_labels.bytes);
  layout.bytes =
      layout.adapter_keys +
      step_input_aligned(plm_model_adapter_keys(shape->model, chunks, length) * sizeof(uint64_t));
  return layout;
}

size_t plm_step_input_bytes(const struct plm_step_shape *shape)
{
  return plm_step_micros(shape) * plm_step_micro_layout(shape).bytes;
}

size_t plm_step_input_description_bytes(const struct plm_step_shape *shape)
{
  return plm_step_micros(shape) * sizeof(struct plm_micro_input) +
         shape->step_chunks * sizeof(struct plm_objective_totals);
}

void plm_step_input_init(struct plm_step_input *input, const struct plm_step_shape *shape,
                         void *block)
{
  *input = (struct plm_step_input){
      .block = block,
      .micro = plm_alloc_zeroed(plm_step_micros(shape), sizeof *input->micro),
      .chunks = plm_alloc_zeroed(shape->step_chunks, sizeof *input->chunks)};
}

void plm_step_input_deinit(struct plm_step_input *input)
{
  free(input->micro);
  free(input->chunks);
  plm_batch_labels_deinit(&input->labels);
  *input = (struct plm_step_input){0};
}

struct plm_batch plm_batch_slice(const struct plm_batch *batch, uint32_t first, uint32_t count)
{
  PLM_ASSERT(first + count <= batch->chunks);
  struct plm_batch slice = *batch;
  slice.chunks = count;
  slice.tokens =
      (const char *)batch->tokens + (size_t)first * batch->max_length * batch->token_bytes;
  slice.document_begin = batch->document_begin + first;
  slice.first_chunk = batch->first_chunk + first;
  if (batch->sources != NULL) slice.sources = batch->sources + first;
  if (batch->chunk_ids != NULL) slice.chunk_ids = batch->chunk_ids + first;
  return slice;
}

uint64_t plm_batch_real_tokens(const struct plm_batch *batch)
{
  uint64_t tokens = 0;
  for (uint32_t d = batch->document_begin[0]; d < batch->document_begin[batch->chunks]; d++)
    tokens += batch->documents[d].tokens;
  return tokens;
}

/* Fills what the head of a model that predicts labels reads. Nothing is masked. */
static plm_status fill_labels(struct plm_step_input *input, const struct plm_step_shape *shape,
                              const struct plm_batch *batch, const struct plm_micro_layout *layout,
                              char *block, struct plm_objective_totals *chunks,
                              struct plm_error *error)
{
  struct plm_chunk_draw *draws = (void *)(block + layout->draws);
  PLM_TRY(plm_batch_labels_fill(shape->labels->choice, shape->labels->schemas, batch,
                                &input->labels, error));
  plm_label_rows_fill(shape->model, batch, &input->labels, &layout->of_labels,
                      block + layout->labels, chunks);
  for (uint32_t c = 0; c < batch->chunks; c++) draws[c] = (struct plm_chunk_draw){0};
  memset(block + layout->ends, 0,
         plm_objective_end_words(batch->chunks, batch->max_length) * sizeof(uint32_t));
  return PLM_OK;
}

/* Fills micro-batch i, of the chunks of `batch`, from the place of its first chunk on. */
static plm_status fill_micro(struct plm_step_input *input, const struct plm_step_shape *shape,
                             uint32_t i, uint32_t first, const struct plm_batch *batch,
                             struct plm_error *error)
{
  const struct plm_micro_layout layout = plm_step_micro_layout(shape);
  struct plm_micro_input *micro = &input->micro[i];
  struct plm_objective_totals *chunks = &input->chunks[first];
  char *block = (char *)input->block + i * layout.bytes;
  *micro = (struct plm_micro_input){
      .first = first, .chunks = batch->chunks, .real_tokens = plm_batch_real_tokens(batch)};
  if (shape->labels != NULL)
    PLM_TRY(fill_labels(input, shape, batch, &layout, block, chunks, error));
  else
    plm_objective_describe(shape->objective, input->step, shape->first_chunk + first, batch,
                           (void *)(block + layout.draws), (void *)(block + layout.ends), chunks);
  plm_model_adapter_keys_fill(shape->model, batch, (void *)(block + layout.adapter_keys));
  for (uint32_t c = 0; c < batch->chunks; c++) plm_objective_totals_add(&micro->totals, &chunks[c]);
  memcpy(block + layout.tokens, batch->tokens,
         (size_t)batch->chunks * batch->max_length * batch->token_bytes);
  plm_masks_build(shape->masks, batch, input->window, (void *)(block + layout.masks),
                  &micro->pairs);
  return PLM_OK;
}

static void add_micro(struct plm_step_totals *totals, const struct plm_micro_input *micro,
                      uint32_t max_length)
{
  totals->count += micro->totals.count;
  totals->rows += micro->totals.rows;
  totals->real_tokens += micro->real_tokens;
  totals->padded_tokens += (uint64_t)micro->chunks * max_length;
}

static uint32_t step_input_smallest(uint32_t a, uint32_t b, uint32_t c)
{
  const uint32_t d = a < b ? a : b;
  return c < d ? c : d;
}

plm_status plm_step_input_fill(struct plm_step_input *input, const struct plm_step_shape *shape,
                               uint64_t s, const struct plm_batch *batch, struct plm_error *error)
{
  PLM_ASSERT(batch->chunks > 0 && batch->chunks <= shape->step_chunks &&
             batch->max_length == shape->max_length);
  input->step = s;
  input->window = plm_schedule_window(shape->model, s);
  input->micro_count = 0;
  input->totals = (struct plm_step_totals){0};
  const uint32_t share_chunks = shape->step_chunks / shape->shares;
  for (uint32_t first = 0, count; first < batch->chunks; first += count) {
    const uint32_t share = first / share_chunks, i = input->micro_count++;
    count = step_input_smallest(shape->micro_chunks, (share + 1) * share_chunks - first,
                                batch->chunks - first);
    const struct plm_batch micro = plm_batch_slice(batch, first, count);
    PLM_TRY(fill_micro(input, shape, i, first, &micro, error));
    input->micro[i].share = share;
    add_micro(&input->totals, &input->micro[i], shape->max_length);
  }
  return PLM_OK;
}
