/* The two sources of chunks: a run's feed, and a corpus opened in this process. */
#ifndef PLM_EVALUATOR_EVALUATE_SOURCES_H
#define PLM_EVALUATOR_EVALUATE_SOURCES_H

#include "common/corpus/corpus.h"
#include "common/feed/feed.h"
#include "common/plan/plan.h"
#include "evaluator/evaluate/evaluate.h"

/* A feed; borrowed. give_up (may be NULL) ends a wait. source borrows *state. */
struct plm_feed_source {
  struct plm_feed *feed;
  const volatile int *give_up;
};
struct plm_chunk_source plm_source_of_feed(struct plm_feed_source *state);

/* A corpus; borrowed. Windows are packed and read as they are needed. */
struct plm_corpus_source;
plm_status plm_corpus_source_open(struct plm_corpus *corpus,
                                  const struct plm_plan_parameters *parameters, uint32_t max_chunks,
                                  struct plm_corpus_source **source, struct plm_error *error);
void plm_corpus_source_close(struct plm_corpus_source *source);
struct plm_chunk_source plm_source_of_corpus(struct plm_corpus_source *state);

#endif
