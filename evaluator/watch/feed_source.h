/* Chunks from the packers of a run, as an evaluation reads them. */
#ifndef PLM_EVALUATOR_WATCH_FEED_SOURCE_H
#define PLM_EVALUATOR_WATCH_FEED_SOURCE_H

#include "common/config/config.h"
#include "common/feed/feed.h"
#include "evaluator/evaluate/evaluate.h"

/* How many bytes the feed may request ahead: network.credit_bytes, but at most twice the evaluation
 * set (evaluator.max_tokens), because beyond its end the set only repeats. */
uint64_t plm_feed_source_credit(const struct plm_config *config);

struct plm_feed_source {
  struct plm_feed *feed;       /* borrowed */
  const volatile int *give_up; /* nonzero ends a wait for packers; may be NULL */
};

/* The interface that an evaluation reads; it borrows `source`. */
struct plm_chunk_source plm_source_of_feed(struct plm_feed_source *source);

#endif
