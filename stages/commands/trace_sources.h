/* The corpora that a run trains on, opened to trace its chunks. */
#ifndef PLM_STAGES_COMMANDS_TRACE_SOURCES_H
#define PLM_STAGES_COMMANDS_TRACE_SOURCES_H

#include "common/base/files/advance.h"
#include "common/base/log/progress.h"
#include "common/config/config.h"
#include "common/plan/mixture.h"
#include "common/plan/trace.h"

/* Initialise it with {0}. */
struct plm_trace_sources {
  uint32_t count;
  struct plm_trace_source {
    struct plm_corpus *corpus;
    struct plm_corpus_cursor *cursor;
    struct plm_plan *plan;
    struct plm_trace *trace;
    uint64_t next; /* the chunk of the source that the step takes next */
  } sources[PLM_MAX_SOURCES];
  struct plm_progress progress; /* of plm_trace_sources_next */
  struct plm_advance advance;
  uint64_t seed;
  struct plm_mixture_history history; /* the size of a step, and the weights, over time */
  /* of the step that plm_trace_sources_place was called for: */
  uint8_t *of; /* (chunks) the source of each chunk */
  uint32_t chunks;
  uint64_t begin; /* g: the chunks that all sources gave before */
  uint64_t step;
};

/* Opens the corpora for step s (from 0). What a resume changed (the size of a step, the corpora and
 * their weights) is read from the run's newest checkpoint; PLM_FORMAT if that contradicts itself.
 * PLM_USAGE: the step is beyond the run, that is, neither in the configuration nor before the
 * newest checkpoint. After a failure as well, the caller closes. */
plm_status plm_trace_sources_open(const struct plm_config *config, uint64_t s,
                                  struct plm_trace_sources *sources, struct plm_error *error);
/* Finds what step s (from 0) takes from them. */
plm_status plm_trace_sources_place(struct plm_trace_sources *sources, uint64_t s,
                                   struct plm_error *error);
/* The next chunk that the step takes from a source. While many chunks before it are counted, a bar
 * is shown, which is gone at the return. */
plm_status plm_trace_sources_next(struct plm_trace_sources *sources, uint32_t source,
                                  struct plm_traced_chunk *chunk, struct plm_error *error);
void plm_trace_sources_close(struct plm_trace_sources *sources);

#endif
