/* The progress of a long command, on stderr: on a terminal a bar with rate and time left, otherwise
 * a line every ten seconds. Nothing with -q. */
#ifndef PLM_COMMON_BASE_LOG_PROGRESS_H
#define PLM_COMMON_BASE_LOG_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct plm_progress {
  const char *label;     /* "ingest" */
  const char *rate_unit; /* "tokens": the rate is shown as tokens/s; NULL: bytes, shown as MB/s */
  uint64_t done_before;  /* work of an interrupted run, which the estimated time leaves out */
  bool terminal, silent, drawn;
  uint64_t start_ns, last_ns;
};

/* The caller may set rate_unit and done_before afterwards. */
void plm_progress_begin(struct plm_progress *progress, const char *label);
/* Shows `done` of `total` units of work (total 0: unknown), the rate of `rated` since the beginning
 * and `items`, which noun names in the singular (plm_format_quantity). It may be called often: most
 * calls only read the clock. */
void plm_progress_update(struct plm_progress *progress, uint64_t done, uint64_t total,
                         uint64_t rated, uint64_t items, const char *noun);
/* Removes the bar: before other lines are printed, and at the end. */
void plm_progress_clear(struct plm_progress *progress);

/* Writes "1:23" or "4:05:06" into text and returns it. */
const char *plm_format_duration(double seconds, char text[32]);
/* Writes "1,234,567" into text and returns it. */
const char *plm_format_count(uint64_t count, char text[32]);
/* "1 sequence" or "1,234 sequences" into text (64 bytes), which is returned. noun is singular; its
 * plural ends in s, or in es after an s. */
const char *plm_format_quantity(uint64_t count, const char *noun, char text[64]);

#endif
