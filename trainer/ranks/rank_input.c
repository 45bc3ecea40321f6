/* A batch as one message: a header, then tokens, the table of documents, where each document's
 * label record begins, where each chunk's documents begin, the sources of the chunks, and the label
 * records. The parts about labels, and with them the sources, may be missing. All ranks have the
 * same byte order, because they are the same build. */
#include "trainer/ranks/rank_input.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

struct header {
  uint32_t end; /* nothing follows */
  uint32_t chunks, max_length, token_bytes, documents;
  uint32_t labelled, sourced; /* it has label records, sources */
  uint64_t label_bytes;
  uint64_t first_chunk;
};

struct layout {
  size_t documents, label_at, begins, sources, labels, bytes; /* offsets; tokens are at 0 */
};

static struct layout layout_of(const struct header *header)
{
  struct layout layout;
  const size_t tokens = (size_t)header->chunks * header->max_length * header->token_bytes;
  layout.documents = (tokens + 7) / 8 * 8;
  layout.label_at =
      layout.documents + (size_t)header->documents * sizeof(struct plm_chunk_document);
  layout.begins =
      layout.label_at + (header->labelled != 0 ? (header->documents + 1) * sizeof(uint64_t) : 0);
  layout.sources = layout.begins + (size_t)(header->chunks + 1) * sizeof(uint32_t);
  layout.labels = layout.sources + (header->sourced != 0 ? header->chunks : 0);
  layout.bytes = layout.labels + header->label_bytes;
  return layout;
}

static void pack(const struct plm_batch *batch, const struct layout *layout, char *message)
{
  const uint32_t begin = batch->document_begin[0], end = batch->document_begin[batch->chunks];
  uint32_t *begins = (uint32_t *)(void *)(message + layout->begins);
  memcpy(message, batch->tokens, (size_t)batch->chunks * batch->max_length * batch->token_bytes);
  memcpy(message + layout->documents, batch->documents + begin,
         (end - begin) * sizeof *batch->documents);
  for (uint32_t c = 0; c <= batch->chunks; c++) begins[c] = batch->document_begin[c] - begin;
  if (batch->labels == NULL) return;
  if (batch->sources != NULL) memcpy(message + layout->sources, batch->sources, batch->chunks);
  uint64_t *label_at = (uint64_t *)(void *)(message + layout->label_at);
  for (uint32_t d = begin; d <= end; d++)
    label_at[d - begin] = batch->label_at[d] - batch->label_at[begin];
  memcpy(message + layout->labels, batch->labels + batch->label_at[begin],
         layout->bytes - layout->labels);
}

/* The records of a batch's documents lie one after another, and so do those of a part of it. */
static uint64_t label_bytes(const struct plm_batch *part)
{
  if (part->labels == NULL) return 0;
  const uint32_t begin = part->document_begin[0], end = part->document_begin[part->chunks];
  return part->label_at[end] - part->label_at[begin];
}

static plm_status send_part(struct plm_ranks *ranks, uint32_t rank, const struct plm_batch *part,
                            struct plm_error *error)
{
  const struct header header = {.labelled = part->labels != NULL,
                                .sourced = part->labels != NULL && part->sources != NULL,
                                .label_bytes = label_bytes(part),
                                .chunks = part->chunks,
                                .max_length = part->max_length,
                                .token_bytes = part->token_bytes,
                                .documents =
                                    part->document_begin[part->chunks] - part->document_begin[0],
                                .first_chunk = part->first_chunk};
  const struct layout layout = layout_of(&header);
  char *message = calloc(1, layout.bytes);
  if (message == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the chunks of rank %u", rank);
  pack(part, &layout, message);
  plm_status status =
      plm_collective_send(ranks->collective, PLM_LANE_INPUT, rank, &header, sizeof header, error);
  if (status == PLM_OK)
    status =
        plm_collective_send(ranks->collective, PLM_LANE_INPUT, rank, message, layout.bytes, error);
  free(message);
  return status;
}

plm_status plm_rank_send_batch(struct plm_ranks *ranks, const struct plm_batch *batch,
                               struct plm_error *error)
{
  const uint32_t chunks = batch->chunks / ranks->ranks;
  PLM_ASSERT(chunks * ranks->ranks == batch->chunks);
  for (uint32_t r = 1; r < ranks->ranks; r++) {
    const struct plm_batch part = plm_batch_slice(batch, r * chunks, chunks);
    PLM_TRY(send_part(ranks, r, &part, error));
  }
  return PLM_OK;
}

void plm_rank_send_end(struct plm_ranks *ranks)
{
  const struct header header = {.end = 1};
  for (uint32_t r = 1; r < ranks->ranks; r++)
    if (plm_collective_send(ranks->collective, PLM_LANE_INPUT, r, &header, sizeof header, NULL) !=
        PLM_OK)
      return;
}

plm_status plm_rank_receive_batch(struct plm_ranks *ranks, struct plm_rank_batch *to, bool *end,
                                  struct plm_error *error)
{
  struct header header;
  PLM_TRY(
      plm_collective_receive(ranks->collective, PLM_LANE_INPUT, 0, &header, sizeof header, error));
  *end = header.end != 0;
  if (*end) return PLM_OK;
  const struct layout layout = layout_of(&header);
  if (layout.bytes > to->capacity) {
    free(to->memory);
    to->memory = malloc(layout.bytes);
    to->capacity = to->memory != NULL ? layout.bytes : 0;
    if (to->memory == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for the chunks of a step");
  }
  PLM_TRY(plm_collective_receive(ranks->collective, PLM_LANE_INPUT, 0, to->memory, layout.bytes,
                                 error));
  const char *message = to->memory;
  to->batch = (struct plm_batch){.chunks = header.chunks,
                                 .max_length = header.max_length,
                                 .token_bytes = header.token_bytes,
                                 .tokens = message,
                                 .document_begin = (const void *)(message + layout.begins),
                                 .documents = (const void *)(message + layout.documents),
                                 .first_chunk = header.first_chunk};
  if (header.sourced != 0) to->batch.sources = (const uint8_t *)message + layout.sources;
  if (header.labelled == 0) return PLM_OK;
  to->batch.labels = (const uint8_t *)message + layout.labels;
  to->batch.label_at = (const void *)(message + layout.label_at);
  return PLM_OK;
}

void plm_rank_batch_deinit(struct plm_rank_batch *batch)
{
  free(batch->memory);
  *batch = (struct plm_rank_batch){0};
}

plm_status plm_rank_add_totals(struct plm_ranks *ranks, struct plm_step_totals *totals,
                               struct plm_error *error)
{
  struct plm_step_totals *all = plm_alloc_zeroed(ranks->ranks, sizeof *all);
  const plm_status status =
      plm_collective_gather(ranks->collective, PLM_LANE_INPUT, all, totals, sizeof *totals, error);
  *totals = (struct plm_step_totals){0};
  for (uint32_t r = 0; r < ranks->ranks && status == PLM_OK; r++) {
    totals->rows += all[r].rows;
    totals->count += all[r].count;
    totals->real_tokens += all[r].real_tokens;
    totals->padded_tokens += all[r].padded_tokens;
  }
  free(all);
  return status;
}
