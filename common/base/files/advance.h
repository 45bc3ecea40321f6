/* Progress reports while large files are read or copied, for a progress bar or for the signs of
 * life of a stage (common/run/run_pulse.h). */
#ifndef PLM_COMMON_BASE_FILES_ADVANCE_H
#define PLM_COMMON_BASE_FILES_ADVANCE_H

#include <stddef.h>
#include <stdint.h>

enum { PLM_ADVANCE_STEP = 1 << 22 }; /* a reader reports at least once for so many bytes */

/* Given by the caller of a reader, who sets tell and context. */
struct plm_advance {
  /* Called in the thread that reads, after each part; it must be cheap. */
  void (*tell)(void *context, uint64_t done, uint64_t total);
  void *context;
  uint64_t done, total; /* bytes; the reader sets them */
};

/* For readers; advance may be NULL. Starts a job of `total` bytes, without a report. */
void plm_advance_begin(struct plm_advance *advance, uint64_t total);
/* Adds `bytes` to what is done and reports it. With 0, it reports only that the reader is alive,
 * for example while it waits. */
void plm_advance_by(struct plm_advance *advance, uint64_t bytes);
/* How much of `left` bytes to handle before plm_advance_by is called. */
static inline size_t plm_advance_step(size_t left)
{
  return left < PLM_ADVANCE_STEP ? left : PLM_ADVANCE_STEP;
}

#endif
