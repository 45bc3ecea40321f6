/* Packs token sequences into the chunks of one batch by best fit: see sequence_batch.h. */
#include "common/inference/sequence_batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/architecture.h"

struct place {
  uint32_t chunk, start, tokens;
};

struct plm_sequence_batch {
  uint32_t max_chunks, max_length, alignment;
  bool single; /* each chunk takes only one sequence */
  int32_t pad;
  int32_t split;        /* documents begin at this token; -1: sequences are not split */
  uint32_t chunks;      /* in use */
  uint32_t *used;       /* (max_chunks): where the next sequence of a chunk would start */
  struct place *places; /* (count), in the order in which sequences were added */
  uint32_t count, capacity;
  uint32_t *document_begin;             /* (max_chunks + 1) */
  struct plm_chunk_document *documents; /* (capacity), chunk by chunk */
  int32_t *wide;                        /* (max_chunks, max_length): the tokens added so far */
  int32_t *inputs;                      /* (chunks, L): the tokens of the finished batch */
  struct plm_batch batch;
};

plm_status plm_sequence_batch_open(const struct plm_model_config *config, uint16_t pad,
                                   uint32_t max_chunks, struct plm_sequence_batch **batch,
                                   struct plm_error *error)
{
  struct plm_sequence_batch *opened = plm_alloc_zeroed(1, sizeof *opened);
  const size_t tokens = (size_t)max_chunks * config->max_length;
  opened->max_chunks = max_chunks;
  opened->max_length = config->max_length;
  opened->alignment = plm_architecture_group(config);
  for (uint32_t i = 0; i < config->pattern_count; i++)
    opened->single |= (config->pattern[i] & PLM_ATTENTION_BLOCK) != 0;
  opened->pad = pad;
  opened->split = -1;
  opened->capacity = (uint32_t)(tokens / opened->alignment);
  opened->used = calloc(max_chunks, sizeof *opened->used);
  opened->places = calloc(opened->capacity, sizeof *opened->places);
  opened->document_begin = calloc(max_chunks + 1, sizeof *opened->document_begin);
  opened->documents = calloc(opened->capacity, sizeof *opened->documents);
  opened->wide = calloc(tokens, sizeof *opened->wide);
  opened->inputs = calloc(tokens, sizeof *opened->inputs);
  if (opened->used == NULL || opened->places == NULL || opened->document_begin == NULL ||
      opened->documents == NULL || opened->wide == NULL || opened->inputs == NULL) {
    plm_sequence_batch_close(opened);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a batch of %zu tokens", tokens);
  }
  *batch = opened;
  return PLM_OK;
}

void plm_sequence_batch_close(struct plm_sequence_batch *batch)
{
  if (batch == NULL) return;
  free(batch->inputs);
  free(batch->wide);
  free(batch->documents);
  free(batch->document_begin);
  free(batch->places);
  free(batch->used);
  free(batch);
}

void plm_sequence_batch_split_at(struct plm_sequence_batch *batch, int32_t token)
{
  PLM_ASSERT(batch->alignment == 1);
  batch->split = token;
}

void plm_sequence_batch_reset(struct plm_sequence_batch *batch)
{
  batch->chunks = 0;
  batch->count = 0;
}

/* Rounds up to the alignment. */
static uint32_t sequence_batch_aligned(const struct plm_sequence_batch *batch, uint32_t count)
{
  return (count + batch->alignment - 1) / batch->alignment * batch->alignment;
}

/* Whether a sequence in its own chunk would leave more than a quarter of it empty, if all chunks
 * are as long as the first. */
static bool is_wasteful(const struct plm_sequence_batch *batch, uint32_t count)
{
  return batch->single && batch->chunks > 0 &&
         4 * (uint64_t)sequence_batch_aligned(batch, count) < 3 * (uint64_t)batch->used[0];
}

/* The fullest chunk that has room, or else a new one; max_chunks if there is none. */
static uint32_t find_chunk(const struct plm_sequence_batch *batch, uint32_t count)
{
  if (is_wasteful(batch, count)) return batch->max_chunks;
  uint32_t best = batch->chunks;
  for (uint32_t c = 0; c < batch->chunks && !batch->single; c++) {
    const bool fits = batch->used[c] + count <= batch->max_length;
    if (fits && (best == batch->chunks || batch->used[c] > batch->used[best])) best = c;
  }
  return best;
}

bool plm_sequence_batch_has_room(const struct plm_sequence_batch *batch, uint32_t count)
{
  return find_chunk(batch, count) < batch->max_chunks;
}

bool plm_sequence_batch_add(struct plm_sequence_batch *batch, const int32_t *tokens, uint32_t count)
{
  PLM_ASSERT(count >= 1 && count <= batch->max_length);
  const uint32_t chunk = find_chunk(batch, count);
  if (chunk == batch->max_chunks) return false;
  if (chunk == batch->chunks) batch->used[batch->chunks++] = 0;
  const uint32_t start = batch->used[chunk], after = start + count;
  int32_t *row = batch->wide + (size_t)chunk * batch->max_length;
  memcpy(row + start, tokens, count * sizeof *tokens);
  /* max_length is a multiple of the alignment, so the next start is at most the end of the chunk.
   */
  const uint32_t next = sequence_batch_aligned(batch, after);
  PLM_ASSERT(batch->count < batch->capacity && after <= next && next <= batch->max_length);
  for (uint32_t t = after; t < next; t++) row[t] = batch->pad;
  batch->used[chunk] = next;
  batch->places[batch->count++] = (struct place){chunk, start, count};
  return true;
}

uint32_t plm_sequence_batch_count(const struct plm_sequence_batch *batch)
{
  return batch->count;
}

/* Where the document that begins at token `from` of a place ends. */
static uint32_t document_end(const struct plm_sequence_batch *batch, const struct place *place,
                             uint32_t from)
{
  const int32_t *tokens = batch->wide + (size_t)place->chunk * batch->max_length + place->start;
  do from++;
  while (from < place->tokens && tokens[from] != batch->split);
  return from;
}

/* Counting sort by chunk. Within a chunk, sequences were added in ascending order of their starts.
 */
static void list_documents(struct plm_sequence_batch *batch)
{
  uint32_t *begin = batch->document_begin, total = 0;
  memset(begin, 0, (batch->chunks + 1) * sizeof *begin);
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct place *place = &batch->places[i];
    for (uint32_t t = 0; t < place->tokens; t = document_end(batch, place, t), total++)
      begin[place->chunk + 1]++;
  }
  for (uint32_t c = 0; c < batch->chunks; c++) begin[c + 1] += begin[c];
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct place *place = &batch->places[i];
    for (uint32_t t = 0, end; t < place->tokens; t = end) {
      end = document_end(batch, place, t);
      batch->documents[begin[place->chunk]++] =
          (struct plm_chunk_document){.number = i,
                                      .start = place->start + t,
                                      .tokens = end - t,
                                      .offset = t,
                                      .residues = place->tokens};
    }
  }
  PLM_ASSERT(batch->chunks == 0 || begin[batch->chunks - 1] == total);
  for (uint32_t c = batch->chunks; c > 0; c--) begin[c] = begin[c - 1];
  begin[0] = 0;
}

static int longest_first(const void *left, const void *right, void *context)
{
  const struct plm_sequence_queue *queue = context;
  const uint32_t i = *(const uint32_t *)left, j = *(const uint32_t *)right;
  const uint32_t a = queue->length(queue->context, i), b = queue->length(queue->context, j);
  if (a != b) return a > b ? -1 : 1;
  return (i > j) - (i < j);
}

void plm_sequence_queue_sort(struct plm_sequence_queue *queue)
{
  qsort_r(queue->waiting, queue->count, sizeof *queue->waiting, longest_first, queue);
}

uint32_t plm_sequence_batch_fill(struct plm_sequence_batch *batch, struct plm_sequence_queue *queue,
                                 uint32_t *taken)
{
  uint32_t kept = 0, count = 0, refused = UINT32_MAX; /* the last length that did not fit */
  plm_sequence_batch_reset(batch);
  for (uint32_t k = 0; k < queue->count; k++) {
    const uint32_t i = queue->waiting[k], length = queue->length(queue->context, i);
    if (length == refused || !plm_sequence_batch_has_room(batch, length)) {
      refused = length;
      queue->waiting[kept++] = i;
      continue;
    }
    const bool added = plm_sequence_batch_add(batch, queue->tokens(queue->context, i), length);
    PLM_ASSERT(added);
    taken[count++] = i;
  }
  queue->count = kept;
  return count;
}

const struct plm_batch *plm_sequence_batch_finish(struct plm_sequence_batch *batch)
{
  uint32_t length = 0;
  for (uint32_t c = 0; c < batch->chunks; c++) {
    if (batch->used[c] > length) length = batch->used[c];
  }
  for (uint32_t c = 0; c < batch->chunks; c++) {
    int32_t *to = batch->inputs + (size_t)c * length;
    memcpy(to, batch->wide + (size_t)c * batch->max_length, batch->used[c] * sizeof *to);
    for (uint32_t t = batch->used[c]; t < length; t++) to[t] = batch->pad;
  }
  list_documents(batch);
  batch->batch = (struct plm_batch){.chunks = batch->chunks,
                                    .max_length = length,
                                    .document_begin = batch->document_begin,
                                    .documents = batch->documents};
  return &batch->batch;
}

const int32_t *plm_sequence_batch_inputs(const struct plm_sequence_batch *batch)
{
  return batch->inputs;
}

uint32_t plm_sequence_batch_row(const struct plm_sequence_batch *batch, uint32_t i)
{
  PLM_ASSERT(i < batch->count);
  /* Otherwise a sequence was added after plm_sequence_batch_finish. */
  PLM_ASSERT(batch->places[i].chunk < batch->batch.chunks &&
             batch->places[i].start + batch->places[i].tokens <= batch->batch.max_length);
  return batch->places[i].chunk * batch->batch.max_length + batch->places[i].start;
}
