/* Distinguishes a full disk, and the limit on the size of files, from other errors of LMDB. */
#include "stages/ingest/lmdb_error.h"

#include <errno.h>
#include <lmdb.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_description.h"

/* LMDB reports a short write as EIO or ENOSPC. These tell whether the disk is full, and whether the
 * file has reached the limit on the size of files. */
static bool disk_is_full(const char *directory, size_t needed_bytes)
{
  struct statvfs information;
  return statvfs(directory, &information) == 0 &&
         (uint64_t)information.f_bavail * information.f_frsize < needed_bytes;
}

static bool file_is_full(const char *directory)
{
  char path[PLM_PATH_SIZE];
  struct rlimit limit;
  uint64_t size;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && /* RLIM_INFINITY is beyond any size */
         plm_path_join(path, directory, PLM_CORPUS_DATA, NULL) == PLM_OK &&
         plm_file_size(path, &size, NULL) == PLM_OK && size >= limit.rlim_cur;
}

plm_status plm_lmdb_write_error(const char *directory, size_t needed_bytes, int code,
                                const char *what, struct plm_error *error)
{
  if (code == EFBIG || ((code == EIO || code == ENOSPC) && file_is_full(directory))) {
    errno = EFBIG;
    return plm_error_errno(error, "cannot %s %s", what, directory);
  }
  if (code == ENOSPC || code == EDQUOT || (code == EIO && disk_is_full(directory, needed_bytes))) {
    plm_error_set(error, PLM_NO_SPACE, "cannot %s %s: %s", what, directory,
                  strerror(code == EIO ? ENOSPC : code));
    return plm_error_hint(
        error, "while it writes, ingest needs twice the size of the finished corpus, and "
               "with --clusters also the size of its sequences as text");
  }
  return plm_error_set(error, code == ENOMEM ? PLM_NO_MEMORY : PLM_IO, "cannot %s %s: %s", what,
                       directory, mdb_strerror(code));
}
