/* The batches of a corpus: windows are packed and read one after another, and their chunks copied
 * into the batch that the caller asked for. */
#include "evaluator/evaluate/corpus_stream.h"

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
  /* the batch that the caller holds until release */
  void *tokens;
  uint32_t *document_begin;
  struct plm_chunk_document *documents;
  size_t document_capacity;
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
  free(stream);
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
  *total = 0;
  if (info->splits[split].documents == 0) return PLM_OK;
  PLM_TRY(plm_plan_open(&state->parameters, plm_corpus_lengths(state->corpus, split),
                        info->splits[split].documents, &state->plan, error));
  state->windows = plm_plan_windows(state->plan);
  for (uint64_t window = 0; window < state->windows; window++) {
    PLM_TRY(plm_plan_window(state->plan, 0, window, &state->window, error));
    *total += state->window.chunks;
  }
  state->window.chunks = 0;
  return PLM_OK;
}

static plm_status load_window(struct plm_corpus_stream *state, struct plm_error *error)
{
  PLM_TRY(plm_plan_window(state->plan, 0, state->next_window, &state->window, error));
  const size_t bytes = plm_assemble_bytes(state->plan, &state->window);
  if (bytes > state->window_capacity) {
    void *tokens = realloc(state->window_tokens, bytes);
    if (tokens == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "out of memory for a window of %zu bytes", bytes);
    state->window_tokens = tokens;
    state->window_capacity = bytes;
  }
  PLM_TRY(plm_assemble_window(state->cursor, state->split, state->plan, &state->window,
                              state->window_tokens, error));
  state->next_window++;
  state->used = 0;
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
  if (before + count > state->document_capacity) {
    const size_t capacity = 2 * (size_t)(before + count);
    struct plm_chunk_document *documents =
        realloc(state->documents, capacity * sizeof *state->documents);
    if (documents == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for %zu documents", capacity);
    state->documents = documents;
    state->document_capacity = capacity;
  }
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
  return PLM_OK;
}

static void corpus_stream_release(void *context, struct plm_batch *batch)
{
  (void)context;
  *batch = (struct plm_batch){0};
}

struct plm_chunk_stream plm_stream_of_corpus(struct plm_corpus_stream *stream)
{
  return (struct plm_chunk_stream){stream, corpus_stream_begin, corpus_stream_next,
                                   corpus_stream_release};
}
