/* The corpora that a run trains on, opened to trace its chunks. */
#ifndef PLM_STAGES_COMMANDS_TRACE_SOURCES_H
#define PLM_STAGES_COMMANDS_TRACE_SOURCES_H

#include "common/config/config.h"
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
  uint8_t *of; /* (chunks) the source of each chunk of the step */
  uint32_t chunks;
};

/* Opens the corpora and finds what step s (from 0) takes from them. What a resume changed (the size
 * of a step, the corpora and their weights) is read from the run's newest checkpoint; PLM_FORMAT if
 * that contradicts itself. After a failure as well, the caller closes. */
plm_status plm_trace_sources_open(const struct plm_config *config, uint64_t s,
                                  struct plm_trace_sources *sources, struct plm_error *error);
void plm_trace_sources_close(struct plm_trace_sources *sources);

#endif
