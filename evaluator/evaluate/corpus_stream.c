/* The batches of a corpus: windows are packed and read one after another, and their chunks copied
 * into the batch that the caller asked for. */
#include "evaluator/evaluate/corpus_stream.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/plan/assemble.h"

struct plm_corpus_stream {
  struct plm_corpus *corpus;
  struct plm_plan_parameters parameters;
  uint32_t max_chunks;
  struct plm_corpus_cursor *cursor;
  enum plm_split split;
  struct plm_plan *plan;
  uint64_t next_window, windows;
  struct plm_window window;
  uint32_t used; /* chunks of the window that have been handed out */
  void *window_tokens;
  size_t window_capacity;
  /* Label records, which are read once somebody has asked for the schema: those of the window, in
   * the order in which they are read, and where that of each document is. */
  bool labelled;
  uint8_t *window_labels;
  size_t *window_label_at;
  size_t window_label_capacity;
  /* the batch that the caller holds until release */
  void *tokens;
  uint32_t *document_begin;
  struct plm_chunk_document *documents;
  size_t document_capacity;
  uint8_t *labels;
  uint64_t *label_at; /* (document_capacity + 1) */
  size_t label_capacity;
};

plm_status plm_corpus_stream_open(struct plm_corpus *corpus,
                                  const struct plm_plan_parameters *parameters, uint32_t max_chunks,
                                  struct plm_corpus_stream **stream, struct plm_error *error)
{
  struct plm_corpus_stream *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->corpus = corpus;
  opened->parameters = *parameters;
  opened->max_chunks = max_chunks;
  opened->tokens = malloc((size_t)max_chunks * parameters->max_length * sizeof(uint16_t));
  opened->document_begin = calloc(max_chunks + 1u, sizeof *opened->document_begin);
  plm_status status = PLM_OK;
  if (opened->tokens == NULL || opened->document_begin == NULL)
    status = plm_error_set(error, PLM_NO_MEMORY, "out of memory for %u chunks", max_chunks);
  if (status == PLM_OK) status = plm_corpus_cursor_open(corpus, &opened->cursor, error);
  if (status != PLM_OK) {
    plm_corpus_stream_close(opened);
    return status;
  }
  *stream = opened;
  return PLM_OK;
}

void plm_corpus_stream_close(struct plm_corpus_stream *stream)
{
  if (stream == NULL) return;
  plm_corpus_cursor_close(stream->cursor);
  plm_plan_close(stream->plan);
  plm_window_deinit(&stream->window);
  free(stream->window_tokens);
  free(stream->tokens);
  free(stream->document_begin);
  free(stream->documents);
  free(stream->window_labels);
  free(stream->window_label_at);
  free(stream->labels);
  free(stream->label_at);
  free(stream);
}

/* Adds up the chunks of all windows of the plan. */
static plm_status count_chunks(const struct plm_corpus_stream *state, uint64_t *total,
                               struct plm_error *error)
{
  const struct plm_plan_corpus from = {
      .plan = state->plan, .cursor = state->cursor, .split = state->split};
  uint32_t *counts = plm_alloc(state->windows * sizeof *counts);
  const plm_status status = plm_plan_window_chunks(state->plan, 0, 0, state->windows,
                                                   plm_plan_read_corpus, &from, counts, error);
  if (status == PLM_OK)
    for (uint64_t w = 0; w < state->windows; w++) *total += counts[w];
  free(counts);
  return status;
}

static plm_status corpus_stream_begin(void *context, enum plm_split split, uint64_t *total,
                                      struct plm_error *error)
{
  struct plm_corpus_stream *state = context;
  const struct plm_corpus_info *info = plm_corpus_info(state->corpus);
  plm_plan_close(state->plan);
  state->plan = NULL;
  state->split = split;
  state->next_window = state->windows = 0;
  state->window.chunks = state->used = 0;
  if (total != NULL) *total = 0;
  if (info->splits[split].documents == 0) return PLM_OK;
  PLM_TRY(plm_plan_open_corpus(&state->parameters, state->corpus, split, &state->plan, error));
  state->windows = plm_plan_windows(state->plan);
  return total != NULL ? count_chunks(state, total, error) : PLM_OK;
}

/* Makes room for `more` bytes after the first `used`. */
static plm_status label_room(uint8_t **bytes, size_t *capacity, size_t used, size_t more,
                             struct plm_error *error)
{
  if (used + more <= *capacity) return PLM_OK;
  const size_t wanted = 2 * (used + more);
  uint8_t *moved = realloc(*bytes, wanted);
  if (moved == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for labels of %zu bytes", wanted);
  *bytes = moved;
  *capacity = wanted;
  return PLM_OK;
}

/* The window was planned with lengths that nothing had proven. */
static plm_status check_planned_length(const struct plm_corpus_stream *state,
                                       const struct plm_chunk_document *planned, uint32_t proven,
                                       struct plm_error *error)
{
  if (planned->residues == proven) return PLM_OK;
  plm_error_set(
      error, PLM_CORRUPT, "document %llu of %s was read with %u residues, but ingest wrote %u",
      (unsigned long long)planned->number, plm_split_name(state->split), planned->residues, proven);
  plm_error_hint(error, "copy the corpus again or ingest its sources again");
  return plm_error_where(error, "%s", plm_corpus_path(state->corpus));
}

/* Reads and proves the label records and lengths of a window, group by group. */
static plm_status load_labels(struct plm_corpus_stream *state, struct plm_error *error)
{
  const struct plm_window *window = &state->window;
  free(state->window_label_at);
  state->window_label_at = malloc(window->document_count * sizeof *state->window_label_at);
  if (state->window_label_at == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory for the labels of %u documents",
                         window->document_count);
  size_t used = 0;
  for (uint32_t slot = 0; slot < window->group_count; slot++) {
    const uint32_t *lengths = NULL;
    const uint8_t *records;
    const size_t *offsets;
    PLM_TRY(plm_corpus_proven_lengths(state->cursor, state->split, window->groups[slot], &lengths,
                                      error));
    PLM_TRY(plm_corpus_labels(state->cursor, state->split, window->groups[slot], &records, &offsets,
                              error));
    for (uint32_t p = window->group_begin[slot]; p < window->group_begin[slot + 1]; p++) {
      const uint32_t i = window->places[p].document;
      const uint64_t in_group = window->documents[i].number % PLM_GROUP_DOCUMENTS;
      const size_t *begin = offsets + in_group;
      const size_t size = begin[1] - begin[0];
      PLM_TRY(check_planned_length(state, &window->documents[i], lengths[in_group], error));
      PLM_TRY(label_room(&state->window_labels, &state->window_label_capacity, used, size, error));
      memcpy(state->window_labels + used, records + begin[0], size);
      state->window_label_at[i] = used;
      used += size;
    }
  }
  return PLM_OK;
}

/* With labels, the lengths are proven together with them, so that each label record is decompressed
 * once, and those of the plan are compared with the proven ones. */
static plm_status load_window(struct plm_corpus_stream *state, struct plm_error *error)
{
  const struct plm_plan_corpus from = {.plan = state->plan,
                                       .cursor = state->cursor,
                                       .split = state->split,
                                       .prove = !state->labelled};
  PLM_TRY(plm_plan_window(state->plan, 0, state->next_window, plm_plan_read_corpus, &from,
                          &state->window, error));
  const size_t bytes = plm_assemble_bytes(state->plan, &state->window);
  if (bytes > state->window_capacity) {
    void *tokens = realloc(state->window_tokens, bytes);
    if (tokens == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a window of %zu bytes", bytes);
    state->window_tokens = tokens;
    state->window_capacity = bytes;
  }
  if (state->labelled) PLM_TRY(load_labels(state, error));
  PLM_TRY(plm_assemble_window(state->cursor, state->split, state->plan, &state->window,
                              state->window_tokens, error));
  state->next_window++;
  state->used = 0;
  return PLM_OK;
}

/* Appends the label records of documents [first, first + count) of the window, after those of
 * `before` documents of the batch. */
static plm_status copy_labels(struct plm_corpus_stream *state, uint32_t first, uint32_t count,
                              uint32_t before, struct plm_error *error)
{
  const struct plm_label_schema *schema = plm_corpus_schema(state->corpus);
  if (before == 0) state->label_at[0] = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t at = state->label_at[before + i];
    const size_t size = plm_label_record_size(schema, state->window.documents[first + i].residues);
    PLM_TRY(label_room(&state->labels, &state->label_capacity, at, size, error));
    memcpy(state->labels + at, state->window_labels + state->window_label_at[first + i], size);
    state->label_at[before + i + 1] = at + size;
  }
  return PLM_OK;
}

/* Room for `count` documents in the batch. */
static plm_status document_room(struct plm_corpus_stream *state, size_t count,
                                struct plm_error *error)
{
  if (count <= state->document_capacity) return PLM_OK;
  const size_t capacity = 2 * count;
  struct plm_chunk_document *documents =
      realloc(state->documents, capacity * sizeof *state->documents);
  if (documents != NULL) state->documents = documents;
  uint64_t *label_at = realloc(state->label_at, (capacity + 1) * sizeof *state->label_at);
  if (label_at != NULL) state->label_at = label_at;
  if (documents == NULL || label_at == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu documents", capacity);
  state->document_capacity = capacity;
  return PLM_OK;
}

/* Appends the next chunk of the window to the batch. */
static plm_status copy_chunk(struct plm_corpus_stream *state, struct plm_batch *batch,
                             struct plm_error *error)
{
  const struct plm_window *window = &state->window;
  const uint32_t first = window->chunk_begin[state->used];
  const uint32_t count = window->chunk_begin[state->used + 1] - first;
  const uint32_t before = state->document_begin[batch->chunks];
  const size_t bytes = (size_t)batch->max_length * batch->token_bytes;
  PLM_TRY(document_room(state, (size_t)before + count, error));
  if (state->labelled) PLM_TRY(copy_labels(state, first, count, before, error));
  memcpy(state->documents + before, window->documents + first, count * sizeof *state->documents);
  memcpy((char *)state->tokens + batch->chunks * bytes,
         (const char *)state->window_tokens + state->used * bytes, bytes);
  state->document_begin[++batch->chunks] = before + count;
  state->used++;
  return PLM_OK;
}

static plm_status corpus_stream_next(void *context, uint32_t most, struct plm_batch *batch,
                                     struct plm_error *error)
{
  struct plm_corpus_stream *state = context;
  PLM_ASSERT(most <= state->max_chunks);
  *batch = (struct plm_batch){
      .max_length = state->parameters.max_length,
      .token_bytes = plm_tokenizer_of(state->parameters.tokenizer)->token_bytes,
  };
  while (batch->chunks < most) {
    if (state->used == state->window.chunks) {
      if (state->next_window == state->windows) break;
      PLM_TRY(load_window(state, error));
      continue;
    }
    PLM_TRY(copy_chunk(state, batch, error));
  }
  batch->tokens = state->tokens;
  batch->document_begin = state->document_begin;
  batch->documents = state->documents;
  batch->labels = state->labelled ? state->labels : NULL;
  batch->label_at = state->labelled ? state->label_at : NULL;
  return PLM_OK;
}

static void corpus_stream_release(void *context, struct plm_batch *batch)
{
  (void)context;
  *batch = (struct plm_batch){0};
}

static plm_status corpus_stream_labels(void *context, const struct plm_label_schema **schema,
                                       struct plm_error *error)
{
  struct plm_corpus_stream *state = context;
  (void)error;
  state->labelled = plm_corpus_has_labels(plm_corpus_info(state->corpus));
  *schema = state->labelled ? plm_corpus_schema(state->corpus) : NULL;
  return PLM_OK;
}

struct plm_chunk_stream plm_stream_of_corpus(struct plm_corpus_stream *stream)
{
  return (struct plm_chunk_stream){stream, corpus_stream_begin, corpus_stream_next,
                                   corpus_stream_release, corpus_stream_labels};
}
