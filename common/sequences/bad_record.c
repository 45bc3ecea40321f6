/* Bad records: see bad_record.h. */
#include "common/sequences/bad_record.h"

#include "common/base/log.h"

enum { SHOWN = 20 };

plm_status plm_bad_record(bool strict, uint64_t *count, struct plm_progress *progress,
                          struct plm_error *error)
{
  if (strict)
    return plm_error_hint(error, "mend it, or leave --strict out: then it is counted and skipped");
  ++*count;
  if (*count > SHOWN) return PLM_OK;
  plm_progress_clear(progress);
  plm_warning("%s: %s: skipped", error->where, error->what);
  if (*count == SHOWN) plm_warning("further bad records are counted, not shown");
  return PLM_OK;
}
