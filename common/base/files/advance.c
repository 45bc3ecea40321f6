/* Counts the bytes, and passes them on. */
#include "common/base/files/advance.h"

void plm_advance_begin(struct plm_advance *advance, uint64_t total)
{
  if (advance == NULL) return;
  advance->done = 0;
  advance->total = total;
}

void plm_advance_by(struct plm_advance *advance, uint64_t bytes)
{
  if (advance == NULL || advance->tell == NULL) return;
  advance->done += bytes;
  advance->tell(advance->context, advance->done, advance->total);
}
