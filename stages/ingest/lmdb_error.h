/* What an error of LMDB means while ingest writes an environment. */
#ifndef PLM_STAGES_INGEST_LMDB_ERROR_H
#define PLM_STAGES_INGEST_LMDB_ERROR_H

#include <stddef.h>

#include "common/base/status.h"

/* Fills error with "cannot WHAT DIRECTORY: reason". code is LMDB's and not 0; needed_bytes is the
 * most that one transaction writes to the data.mdb in the directory. PLM_NO_SPACE, PLM_NO_MEMORY or
 * PLM_IO. */
plm_status plm_lmdb_write_error(const char *directory, size_t needed_bytes, int code,
                                const char *what, struct plm_error *error);

#endif
