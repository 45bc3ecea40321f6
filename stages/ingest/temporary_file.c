/* Buffered writing and exact reading of a temporary file. */
#include "stages/ingest/temporary_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BYTES = 1 << 20 }; /* collected before they are written */

plm_status plm_temporary_file_open(const char *directory, const char *name,
                                   struct plm_temporary_file *file, struct plm_error *error)
{
  PLM_TRY(plm_path_join(file->path, directory, name, error));
  file->descriptor = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return file->descriptor < 0 ? plm_error_errno(error, "cannot create %s", file->path) : PLM_OK;
}

void plm_temporary_file_close(struct plm_temporary_file *file)
{
  if (file->descriptor >= 0) close(file->descriptor);
  free(file->pending.data);
}

plm_status plm_temporary_file_append(struct plm_temporary_file *file, const void *bytes,
                                     size_t size, struct plm_error *error)
{
  if (size == 0) return PLM_OK;
  PLM_TRY(plm_bytes_reserve(&file->pending, size, error));
  memcpy(file->pending.data + file->pending.size, bytes, size);
  file->pending.size += size;
  file->size += size;
  return file->pending.size < WRITE_BYTES ? PLM_OK : plm_temporary_file_flush(file, error);
}

plm_status plm_temporary_file_flush(struct plm_temporary_file *file, struct plm_error *error)
{
  const size_t size = file->pending.size;
  file->pending.size = 0;
  const plm_status status =
      plm_file_write_all(file->descriptor, file->pending.data, size, file->path, error);
  if (status == PLM_NO_SPACE)
    plm_error_hint(error, "with --clusters, ingest also needs the size of the sequences as text");
  return status;
}

plm_status plm_temporary_file_read(const struct plm_temporary_file *file, void *bytes, size_t size,
                                   uint64_t offset, struct plm_error *error)
{
  return plm_file_read_at(file->descriptor, bytes, size, offset, file->path, error);
}
