/* From the number of a chunk in the run to its documents: the chunks of earlier epochs and windows
 * are only counted; the chunk's own window is packed. */
#include "common/plan/trace.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/plan/assemble.h"

struct plm_trace {
  const struct plm_plan *plan;
  uint64_t epoch, epoch_begin; /* the epoch that `counts` describes, and g of its first chunk */
  uint64_t epoch_chunks;
  uint64_t windows;
  uint32_t *counts; /* (windows): the chunks of each window of the epoch */
  bool packed;      /* window is valid, and belongs to window_epoch */
  uint64_t window_epoch;
  struct plm_window window;
  uint64_t within; /* the chunk in the window that was given last */
  void *tokens;    /* of the whole window, if assembled */
  size_t token_capacity;
  bool assembled;
};

static plm_status count_epoch(struct plm_trace *trace, struct plm_error *error)
{
  PLM_TRY(
      plm_plan_window_chunks(trace->plan, trace->epoch, 0, trace->windows, trace->counts, error));
  trace->epoch_chunks = 0;
  for (uint64_t w = 0; w < trace->windows; w++) trace->epoch_chunks += trace->counts[w];
  return PLM_OK;
}

plm_status plm_trace_open(const struct plm_plan *plan, struct plm_trace **trace,
                          struct plm_error *error)
{
  *trace = NULL;
  struct plm_trace *made = plm_alloc_zeroed(1, sizeof *made);
  made->plan = plan;
  made->windows = plm_plan_windows(plan);
  made->counts = malloc(made->windows * sizeof *made->counts);
  const plm_status status =
      made->counts ? count_epoch(made, error)
                   : plm_error_set(error, PLM_NO_MEMORY, "no memory for a trace of %llu windows",
                                   (unsigned long long)made->windows);
  if (status != PLM_OK) {
    plm_trace_close(made);
    return status;
  }
  *trace = made;
  return PLM_OK;
}

void plm_trace_close(struct plm_trace *trace)
{
  if (!trace) return;
  plm_window_deinit(&trace->window);
  free(trace->counts);
  free(trace->tokens);
  free(trace);
}

plm_status plm_trace_chunk(struct plm_trace *trace, uint64_t g, struct plm_traced_chunk *chunk,
                           struct plm_error *error)
{
  if (g < trace->epoch_begin) {
    trace->epoch = trace->epoch_begin = 0;
    PLM_TRY(count_epoch(trace, error));
  }
  while (g - trace->epoch_begin >= trace->epoch_chunks) {
    PLM_ASSERT(trace->epoch_chunks > 0);
    trace->epoch_begin += trace->epoch_chunks;
    trace->epoch++;
    PLM_TRY(count_epoch(trace, error));
  }
  uint64_t within = g - trace->epoch_begin, window = 0;
  chunk->epoch = trace->epoch;
  chunk->chunk = within;
  while (within >= trace->counts[window]) within -= trace->counts[window++];
  PLM_ASSERT(window < trace->windows);
  if (!trace->packed || trace->window_epoch != trace->epoch || trace->window.window != window) {
    trace->packed = trace->assembled = false;
    PLM_TRY(plm_plan_window(trace->plan, trace->epoch, window, &trace->window, error));
    trace->packed = true;
    trace->window_epoch = trace->epoch;
  }
  PLM_ASSERT(trace->window.chunks == trace->counts[window] && within < trace->window.chunks);
  trace->within = within;
  const uint32_t *begin = trace->window.chunk_begin + within;
  chunk->documents = trace->window.documents + begin[0];
  chunk->count = begin[1] - begin[0];
  return PLM_OK;
}

/* Reads, proves and assembles the window. */
static plm_status assemble(struct plm_trace *trace, struct plm_corpus_cursor *cursor,
                           struct plm_error *error)
{
  const size_t bytes = plm_assemble_bytes(trace->plan, &trace->window);
  if (bytes > trace->token_capacity) {
    free(trace->tokens);
    trace->token_capacity = 0;
    trace->tokens = malloc(bytes);
    if (trace->tokens == NULL)
      return plm_error_set(error, PLM_NO_MEMORY, "no memory for a window of %zu bytes", bytes);
    trace->token_capacity = bytes;
  }
  const struct plm_assembly assembly = {.split = PLM_SPLIT_TRAIN,
                                        .plan = trace->plan,
                                        .window = &trace->window,
                                        .tokens = trace->tokens};
  for (uint32_t i = 0; i < trace->window.group_count; i++) { /* the cursor keeps a proved group */
    PLM_TRY(plm_corpus_prove_group(cursor, PLM_SPLIT_TRAIN, trace->window.groups[i], error));
    PLM_TRY(plm_assemble_groups(cursor, &assembly, i, 1, error));
  }
  trace->assembled = true;
  return PLM_OK;
}

plm_status plm_trace_tokens(struct plm_trace *trace, struct plm_corpus_cursor *cursor,
                            const void **tokens, struct plm_error *error)
{
  const struct plm_plan_parameters *parameters = plm_plan_parameters(trace->plan);
  PLM_ASSERT(trace->packed);
  if (!trace->assembled) PLM_TRY(assemble(trace, cursor, error));
  *tokens =
      (const uint8_t *)trace->tokens +
      trace->within * parameters->max_length * plm_tokenizer_of(parameters->tokenizer)->token_bytes;
  return PLM_OK;
}
