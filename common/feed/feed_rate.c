/* The rate of a packer. */
#include "common/feed/feed_rate.h"

void feed_rate_add(struct feed_rate *rate, struct feed_rate_report report)
{
  if (!rate->begun || report.age_ms < rate->next.age_ms || report.tokens < rate->next.tokens)
    *rate = (struct feed_rate){.begun = true, .from = report, .next = report};
  if (report.age_ms - rate->next.age_ms >= FEED_RATE_SPAN_MS) {
    rate->from = rate->next;
    rate->next = report;
  }
  const uint64_t elapsed_ms = report.age_ms - rate->from.age_ms;
  if (elapsed_ms > 0)
    rate->tokens_per_second =
        1e3 * (double)(report.tokens - rate->from.tokens) / (double)elapsed_ms;
}
