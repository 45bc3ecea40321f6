/* A temporary file that is written from its beginning to its end and then read anywhere. */
#ifndef PLM_STAGES_INGEST_TEMPORARY_FILE_H
#define PLM_STAGES_INGEST_TEMPORARY_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "stages/ingest/group_compressor.h"

struct plm_temporary_file {
  char path[PLM_PATH_SIZE];
  int descriptor;           /* -1: it is not open */
  uint64_t size;            /* with those in `pending` */
  struct plm_bytes pending; /* appended, but not written yet */
};

/* Creates the file `name` in an existing folder, which the caller removes. */
plm_status plm_temporary_file_open(const char *directory, const char *name,
                                   struct plm_temporary_file *file, struct plm_error *error);
void plm_temporary_file_close(struct plm_temporary_file *file);

/* Appends bytes, and writes what has been appended once it is 1 MiB. PLM_NO_SPACE, with a hint for
 * ingest with --clusters, because nothing else makes such files. */
plm_status plm_temporary_file_append(struct plm_temporary_file *file, const void *bytes,
                                     size_t size, struct plm_error *error);
/* Writes all that has been appended. Call it before reading. Errors are those of append. */
plm_status plm_temporary_file_flush(struct plm_temporary_file *file, struct plm_error *error);
/* Reads exactly `size` bytes at `offset`. */
plm_status plm_temporary_file_read(const struct plm_temporary_file *file, void *bytes, size_t size,
                                   uint64_t offset, struct plm_error *error);

#endif
