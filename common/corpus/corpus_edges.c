/* The size and both ends of data.mdb, which are checked before it is opened. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"

enum { EDGE_BYTES = 1 << 20 }; /* hashed at either end */

static plm_status hash_range(int descriptor, const char *path, uint64_t begin, size_t size,
                             char *buffer, struct plm_hash *hash, struct plm_error *error)
{
  PLM_TRY(plm_file_read_at(descriptor, buffer, size, begin, path, error));
  *hash = plm_hash_bytes(buffer, size);
  return PLM_OK;
}

plm_status plm_corpus_edges(int descriptor, const char *path, struct plm_corpus_files *files,
                            struct plm_error *error)
{
  const off_t end = lseek(descriptor, 0, SEEK_END);
  if (end < 0) return plm_error_errno(error, "cannot read %s", path);
  files->size_bytes = (uint64_t)end;
  const size_t edge = end < EDGE_BYTES ? (size_t)end : EDGE_BYTES;
  char *buffer = malloc(EDGE_BYTES);
  if (buffer == NULL)
    return plm_error_set(error, PLM_NO_MEMORY, "out of memory while checking %s", path);
  plm_status status = hash_range(descriptor, path, 0, edge, buffer, &files->first, error);
  if (status == PLM_OK)
    status = hash_range(descriptor, path, (uint64_t)end - edge, edge, buffer, &files->last, error);
  free(buffer);
  return status;
}

plm_status plm_corpus_check_edges(const char *path, const struct plm_corpus_files *stated,
                                  struct plm_error *error)
{
  struct plm_corpus_files found;
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  plm_status status = plm_corpus_edges(descriptor, path, &found, error);
  close(descriptor);
  PLM_TRY(status);
  if (found.size_bytes != stated->size_bytes)
    plm_error_set(error, PLM_CORRUPT, "%s has %llu bytes instead of %llu", path,
                  (unsigned long long)found.size_bytes, (unsigned long long)stated->size_bytes);
  else if (!plm_hash_equal(found.first, stated->first) || !plm_hash_equal(found.last, stated->last))
    plm_error_set(error, PLM_CORRUPT, "%s is not the file that ingest wrote", path);
  else
    return PLM_OK;
  return plm_error_hint(error, "copy the corpus again or ingest its sources again");
}
