/* From the number of a chunk in the run to its documents: the chunks of earlier epochs and windows
 * are only counted; the chunk's own window is packed. */
#include "common/plan/trace.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/plan/assemble.h"

struct plm_trace {
  const struct plm_plan *plan;
  struct plm_plan_corpus from; /* without proofs */
  struct plm_advance *advance;
  bool checked;                /* all lengths are those that ingest wrote */
  uint64_t epoch, epoch_begin; /* the epoch that `counts` describes, and g of its first chunk */
  uint64_t windows, counted;   /* of the epoch */
  uint64_t counted_chunks;     /* in the windows that are counted */
  uint32_t *counts;            /* (counted): the chunks of each window of the epoch */
  bool packed;                 /* window is valid, and belongs to window_epoch */
  uint64_t window_epoch;
  struct plm_window window;
  uint64_t within; /* the chunk in the window that was given last */
  void *tokens;    /* of the whole window, if assembled */
  size_t token_capacity;
  bool assembled;
};

/* Windows that are only counted are not proven, so all lengths are compared with their hash before
 * a count of any window but the run's first one, which is proven if the chunk is in it. */
static plm_status check_lengths(struct plm_trace *trace, struct plm_error *error)
{
  if (!trace->checked) PLM_TRY(plm_corpus_check_lengths(trace->from.cursor, trace->advance, error));
  trace->checked = true;
  return PLM_OK;
}

static void begin_epoch(struct plm_trace *trace, uint64_t epoch, uint64_t begin)
{
  trace->epoch = epoch;
  trace->epoch_begin = begin;
  trace->counted = trace->counted_chunks = 0;
}

/* Counts windows of the epoch until one has chunk `within` of the epoch, or all are counted. Those
 * before the chunk's own are reported. */
static plm_status count_until(struct plm_trace *trace, uint64_t within, struct plm_error *error)
{
  while (trace->counted < trace->windows && trace->counted_chunks <= within) {
    if (trace->epoch > 0 || trace->counted > 0) PLM_TRY(check_lengths(trace, error));
    PLM_TRY(plm_plan_window_chunks(trace->plan, trace->epoch, trace->counted, 1,
                                   plm_plan_read_corpus, &trace->from,
                                   &trace->counts[trace->counted], error));
    const uint32_t chunks = trace->counts[trace->counted++];
    trace->counted_chunks += chunks;
    if (trace->counted_chunks <= within) plm_advance_by(trace->advance, chunks);
  }
  return PLM_OK;
}

/* Moves on to the epoch of chunk g, and counts its windows up to that one. */
static plm_status find_epoch(struct plm_trace *trace, uint64_t g, struct plm_error *error)
{
  if (g < trace->epoch_begin) begin_epoch(trace, 0, 0);
  plm_advance_begin(trace->advance, g - trace->epoch_begin - trace->counted_chunks);
  for (;;) {
    PLM_TRY(count_until(trace, g - trace->epoch_begin, error));
    if (g - trace->epoch_begin < trace->counted_chunks) return PLM_OK;
    PLM_ASSERT(trace->counted == trace->windows && trace->counted_chunks > 0);
    begin_epoch(trace, trace->epoch + 1, trace->epoch_begin + trace->counted_chunks);
  }
}

plm_status plm_trace_open(const struct plm_plan_corpus *from, struct plm_advance *advance,
                          struct plm_trace **trace, struct plm_error *error)
{
  *trace = NULL;
  struct plm_trace *made = plm_alloc_zeroed(1, sizeof *made);
  made->plan = from->plan;
  made->from = *from;
  made->from.prove = false;
  made->advance = advance;
  made->windows = plm_plan_windows(from->plan);
  made->counts = malloc(made->windows * sizeof *made->counts);
  if (made->counts == NULL) {
    plm_trace_close(made);
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for a trace of %llu windows",
                         (unsigned long long)plm_plan_windows(from->plan));
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
  struct plm_plan_corpus proving = trace->from;
  proving.prove = true;
  if (g < trace->epoch_begin || g - trace->epoch_begin >= trace->counted_chunks)
    PLM_TRY(find_epoch(trace, g, error));
  uint64_t within = g - trace->epoch_begin, window = 0;
  chunk->epoch = trace->epoch;
  chunk->chunk = within;
  while (within >= trace->counts[window]) within -= trace->counts[window++];
  PLM_ASSERT(window < trace->windows);
  if (!trace->packed || trace->window_epoch != trace->epoch || trace->window.window != window) {
    trace->packed = trace->assembled = false;
    PLM_TRY(plm_plan_window(trace->plan, trace->epoch, window, plm_plan_read_corpus, &proving,
                            &trace->window, error));
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
static plm_status assemble(struct plm_trace *trace, struct plm_error *error)
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
  const enum plm_split split = trace->from.split;
  const struct plm_assembly assembly = {
      .split = split, .plan = trace->plan, .window = &trace->window, .tokens = trace->tokens};
  for (uint32_t i = 0; i < trace->window.group_count; i++) { /* the cursor keeps a proved group */
    PLM_TRY(plm_corpus_prove_group(trace->from.cursor, split, trace->window.groups[i], error));
    PLM_TRY(plm_assemble_groups(trace->from.cursor, &assembly, i, 1, error));
  }
  trace->assembled = true;
  return PLM_OK;
}

plm_status plm_trace_tokens(struct plm_trace *trace, const void **tokens, struct plm_error *error)
{
  const struct plm_plan_parameters *parameters = plm_plan_parameters(trace->plan);
  PLM_ASSERT(trace->packed);
  if (!trace->assembled) PLM_TRY(assemble(trace, error));
  *tokens =
      (const uint8_t *)trace->tokens +
      trace->within * parameters->max_length * plm_tokenizer_of(parameters->tokenizer)->token_bytes;
  return PLM_OK;
}
