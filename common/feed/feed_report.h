/* What a feed reports: the corpus that its packers serve, and its counters. */
#ifndef PLM_COMMON_FEED_FEED_REPORT_H
#define PLM_COMMON_FEED_FEED_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/corpus/corpus.h"

struct plm_feed_corpus {
  struct plm_hash fingerprint;
  uint64_t documents[PLM_SPLIT_COUNT];
  uint64_t composition[PLM_SPLIT_COUNT][512];
  bool clustered;
  const struct plm_label_schema *labels; /* the feed's, until it is closed; NULL: there are none */
};

struct plm_feed_counters {
  uint64_t chunks, real_tokens, bytes, refused, dropped, invalid, retried;
  uint32_t peers;
};

#endif
