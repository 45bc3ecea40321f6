/* How far the reading or copying of large files is, told to whoever wants to know: a progress bar,
 * or the signs of life of a stage (common/run/run_pulse.h). */
#ifndef PLM_COMMON_BASE_ADVANCE_H
#define PLM_COMMON_BASE_ADVANCE_H

#include <stddef.h>
#include <stdint.h>

enum { PLM_ADVANCE_PIECE = 1 << 22 }; /* bytes that a reader may read without telling */

/* Given by the caller of a reader, who sets tell and context. */
struct plm_advance {
  /* Called in the thread that reads, after each piece; it must be cheap. */
  void (*tell)(void *context, uint64_t done, uint64_t total);
  void *context;
  uint64_t done, total; /* bytes; the reader sets them */
};

/* For readers; advance may be NULL. Begins a work of so many bytes. It tells nothing yet. */
void plm_advance_begin(struct plm_advance *advance, uint64_t total);
/* So many more bytes are done; 0 says only that the reader lives, for example while it waits. */
void plm_advance_by(struct plm_advance *advance, uint64_t bytes);
/* How much of `left` bytes to handle before plm_advance_by is called. */
static inline size_t plm_advance_piece(size_t left)
{
  return left < PLM_ADVANCE_PIECE ? left : PLM_ADVANCE_PIECE;
}

#endif
