/* How far a long command is: a bar with rate and time left on a terminal, a plain line every ten
 * seconds elsewhere, nothing with -q. On stderr. */
#ifndef PLM_COMMON_BASE_PROGRESS_H
#define PLM_COMMON_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct plm_progress {
  const char *label;     /* "ingest" */
  const char *rate_unit; /* "tokens": the rate is in these a second; NULL: bytes, shown as MB/s */
  uint64_t done_before;  /* by a run that this one goes on from: outside the time left */
  bool terminal, silent, drawn;
  uint64_t start_ns, last_ns;
};

/* The caller may set rate_unit and done_before afterwards. */
void plm_progress_begin(struct plm_progress *progress, const char *label);
/* done of total (0: unknown) bytes of input, or other units of work; rated is what the rate counts,
 * since the beginning (bytes uncompressed); items of what unit. Cheap: looks at the clock and
 * returns, but for ten times a second. */
void plm_progress_update(struct plm_progress *progress, uint64_t done, uint64_t total,
                         uint64_t rated, uint64_t items, const char *unit);
/* Removes the bar, before other lines are printed and at the end. */
void plm_progress_clear(struct plm_progress *progress);

/* "1:23" or "4:05:06" into text (32 bytes), which is returned. */
const char *plm_format_duration(double seconds, char text[32]);
/* "1,234,567" into text (32 bytes), which is returned. */
const char *plm_format_count(uint64_t count, char text[32]);
/* "1 sequence" or "1,234 sequences" into text (64 bytes), which is returned. noun is singular, and
 * its plural ends in s. */
const char *plm_format_quantity(uint64_t count, const char *noun, char text[64]);

#endif
