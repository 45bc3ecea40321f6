/* How many tokens a packer serves per second, from the counters that it reports every second. A
 * packer serves whole windows and pauses between them, so the rate of one second says little. This
 * is the rate since an earlier report, which is between FEED_RATE_SPAN_MS and twice that old, or
 * since the first one. */
#ifndef PLM_COMMON_FEED_FEED_RATE_H
#define PLM_COMMON_FEED_FEED_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum { FEED_RATE_SPAN_MS = 30000 };

struct feed_rate_report {
  uint64_t age_ms; /* of the packer */
  uint64_t tokens; /* that it has served in its life */
};

struct feed_rate { /* begins as {0} */
  bool begun;
  struct feed_rate_report from; /* the rate is measured since this report */
  struct feed_rate_report next; /* the next `from` */
  double tokens_per_second;     /* 0 until the second report */
};

/* Reports come in the order of their age. One that goes back begins anew. */
void feed_rate_add(struct feed_rate *rate, struct feed_rate_report report);

#endif
