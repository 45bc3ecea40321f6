/* Chunks from the packers of a run, as an evaluation reads them. */
#ifndef PLM_EVALUATOR_WATCH_FEED_STREAM_H
#define PLM_EVALUATOR_WATCH_FEED_STREAM_H

#include "common/config/config.h"
#include "common/feed/feed.h"
#include "evaluator/evaluate/evaluate.h"

/* How many bytes the feed may request ahead: network.credit_bytes, but at most twice the evaluation
 * set (evaluator.max_tokens), because beyond its end the set only repeats. */
uint64_t plm_feed_stream_credit(const struct plm_config *config);

struct plm_feed_stream {
  struct plm_feed *feed;       /* borrowed */
  const volatile int *give_up; /* nonzero ends a wait for packers; may be NULL */
};

/* The interface that an evaluation reads; it borrows `stream`. */
struct plm_chunk_stream plm_stream_of_feed(struct plm_feed_stream *stream);

#endif
