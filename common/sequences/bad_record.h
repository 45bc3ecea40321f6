/* What becomes of a bad record among many: an error with --strict, else it is counted and skipped,
 * and the first few are shown. */
#ifndef PLM_COMMON_SEQUENCES_BAD_RECORD_H
#define PLM_COMMON_SEQUENCES_BAD_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/progress.h"
#include "common/base/status.h"

/* error: what a reader said of the record. PLM_OK: skipped, and counted in *count; else error's own
 * status with a hint. */
plm_status plm_bad_record(bool strict, uint64_t *count, struct plm_progress *progress,
                          struct plm_error *error);

#endif
