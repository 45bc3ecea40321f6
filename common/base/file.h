/* Files and folders: whole reads with a limit, writes that reach the disk, atomic replacement. */
#ifndef PLM_COMMON_BASE_FILE_H
#define PLM_COMMON_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define PLM_PATH_SIZE 4096

/* "DIR/NAME" into path (PLM_PATH_SIZE bytes); PLM_LIMIT when it does not fit. An absolute name
 * stands for itself. */
plm_status plm_path_join(char path[PLM_PATH_SIZE], const char *directory, const char *name,
                         struct plm_error *error);

/* The folder that path lies in ("." without a slash) into parent; PLM_LIMIT when it does not fit.
 */
plm_status plm_path_parent(char parent[PLM_PATH_SIZE], const char *path, struct plm_error *error);

/* The whole file, NUL-terminated for convenience; the caller frees *bytes. PLM_LIMIT when it is
 * larger than limit_bytes. */
plm_status plm_file_read(const char *path, size_t limit_bytes, char **bytes, size_t *size,
                         struct plm_error *error);

/* All of it, or an error; EINTR and short writes are handled. path only names it in errors. */
plm_status plm_file_write_all(int descriptor, const void *bytes, size_t size, const char *path,
                              struct plm_error *error);

/* Creates (truncates) path with these bytes and mode, and fsyncs the file. */
plm_status plm_file_write(const char *path, const void *bytes, size_t size, unsigned mode,
                          struct plm_error *error);

/* As above, through "PATH.tmp-PID", rename and fsync of the folder: readers see old or new. */
plm_status plm_file_replace(const char *path, const void *bytes, size_t size, unsigned mode,
                            struct plm_error *error);

plm_status plm_file_sync(const char *path, struct plm_error *error);      /* fsync a file */
plm_status plm_directory_sync(const char *path, struct plm_error *error); /* fsync a folder */

/* mkdir -p; an existing folder is fine. */
plm_status plm_directory_make(const char *path, struct plm_error *error);

/* rm -r, never following symbolic links; a missing path is fine. */
plm_status plm_path_remove(const char *path, struct plm_error *error);

bool plm_file_exists(const char *path);
/* Size in bytes; PLM_NOT_FOUND, PLM_IO. */
plm_status plm_file_size(const char *path, uint64_t *size, struct plm_error *error);

#endif
