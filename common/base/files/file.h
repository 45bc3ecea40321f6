/* Files and folders: whole reads with a limit, writes that reach the disk, atomic replacement. */
#ifndef PLM_COMMON_BASE_FILES_FILE_H
#define PLM_COMMON_BASE_FILES_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/status.h"

#define PLM_PATH_SIZE 4096

/* Writes "DIR/NAME" into path, or only NAME if it is absolute. PLM_LIMIT if it does not fit. */
plm_status plm_path_join(char path[PLM_PATH_SIZE], const char *directory, const char *name,
                         struct plm_error *error);

/* Writes the folder of path into parent, "." if path has no slash. PLM_LIMIT if it does not fit. */
plm_status plm_path_parent(char parent[PLM_PATH_SIZE], const char *path, struct plm_error *error);

/* Reads a whole file and adds a NUL, which *size does not count. The caller frees *bytes. PLM_LIMIT
 * if the file is larger than limit_bytes. */
plm_status plm_file_read(const char *path, size_t limit_bytes, char **bytes, size_t *size,
                         struct plm_error *error);

/* Reads `size` bytes from `offset` on, fewer only if the file ends before. EINTR and short reads
 * are handled. Returns how many, or -1 with errno. */
ssize_t plm_file_read_part(int descriptor, void *bytes, size_t size, uint64_t offset);
/* Reads `size` bytes from `offset` on, or fails: PLM_CORRUPT if the file ends before. EINTR and
 * short reads are handled. path is only used in errors. */
plm_status plm_file_read_at(int descriptor, void *bytes, size_t size, uint64_t offset,
                            const char *path, struct plm_error *error);

/* Writes all bytes or fails; EINTR and short writes are handled. path is only used in errors. */
plm_status plm_file_write_all(int descriptor, const void *bytes, size_t size, const char *path,
                              struct plm_error *error);

/* Creates or truncates path, writes the bytes and fsyncs the file. */
plm_status plm_file_write(const char *path, const void *bytes, size_t size, unsigned mode,
                          struct plm_error *error);

/* As plm_file_write, but through "PATH.tmp", a rename and an fsync of the folder, so that a reader
 * sees either the old file or the new one. Writers of the same path take turns. A killed writer
 * leaves at most PATH.tmp, which the next one uses. */
plm_status plm_file_replace(const char *path, const void *bytes, size_t size, unsigned mode,
                            struct plm_error *error);

/* The same without any fsync, for what nobody needs after a power cut. */
plm_status plm_file_replace_unsynced(const char *path, const void *bytes, size_t size,
                                     unsigned mode, struct plm_error *error);

/* $TMPDIR, or /tmp if that is not set or empty. */
const char *plm_temporary_folder(void);

/* Writes the path of this user's cache folder NAME: $XDG_CACHE_HOME/plm-pipeline/NAME, or
 * ~/.cache/plm-pipeline/NAME. With the name "", it is the folder above it. False if neither
 * variable is an absolute path, or if it is too long. */
bool plm_cache_folder(const char *name, char path[PLM_PATH_SIZE]);

/* Opens a new file without a name in the folder, for reading and writing (0600). It disappears when
 * it is closed. If the file system has no O_TMPFILE, the file gets a name, which is removed at
 * once. */
plm_status plm_file_open_unnamed(const char *folder, int *descriptor, struct plm_error *error);

plm_status plm_file_sync(const char *path, struct plm_error *error);      /* fsync a file */
plm_status plm_directory_sync(const char *path, struct plm_error *error); /* fsync a folder */
/* fsyncs the folder of path. Without it, a file that was just made may be missing after a power
 * cut, although the file itself was synced. A folder that cannot be read cannot be synced, which is
 * not an error. */
plm_status plm_parent_sync(const char *path, struct plm_error *error);

/* Creates a folder and those above it, as mkdir -p does, and fsyncs the folder of each that it
 * makes. An existing folder is not an error. */
plm_status plm_directory_make(const char *path, struct plm_error *error);

/* Reads the next entry of a folder; *entry is NULL at its end. An error is not mistaken for the
 * end, as it is in a plain loop over readdir. path is only used in errors. */
plm_status plm_directory_next(DIR *folder, const char *path, const struct dirent **entry,
                              struct plm_error *error);

/* Removes a file or a folder with its contents, without following symbolic links. A missing path is
 * not an error. */
plm_status plm_path_remove(const char *path, struct plm_error *error);

bool plm_file_exists(const char *path);
bool plm_directory_exists(const char *path); /* or a link to a folder */
/* The same if the answer decides what is written, removed or taken for the state of a run: an error
 * is not mistaken for a missing file. */
plm_status plm_file_look(const char *path, bool *exists, struct plm_error *error);
/* The same. Fills *about if the file exists. */
struct stat;
plm_status plm_file_stat(const char *path, struct stat *about, bool *exists,
                         struct plm_error *error);
/* Size in bytes; PLM_NOT_FOUND, PLM_IO. */
plm_status plm_file_size(const char *path, uint64_t *size, struct plm_error *error);
/* Seconds since the file was last changed, with fractions, by the wall clock; 0 if that is in the
 * future. NAN without such a file. */
double plm_file_age_s(const char *path);

#endif
