/* Reading, writing, syncing and removing files and folders. */
#include "common/base/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/descriptors.h"

plm_status plm_path_join(char path[PLM_PATH_SIZE], const char *directory, const char *name,
                         struct plm_error *error)
{
  const int length = name[0] == '/' ? snprintf(path, PLM_PATH_SIZE, "%s", name)
                                    : snprintf(path, PLM_PATH_SIZE, "%s/%s", directory, name);
  if (length < 0 || length >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "path %.80s/%.80s is longer than %d bytes", directory,
                         name, PLM_PATH_SIZE - 1);
  return PLM_OK;
}

plm_status plm_path_parent(char parent[PLM_PATH_SIZE], const char *path, struct plm_error *error)
{
  if (snprintf(parent, PLM_PATH_SIZE, "%s", path) >= PLM_PATH_SIZE)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", path);
  char *slash = strrchr(parent, '/');
  if (slash == NULL)
    snprintf(parent, PLM_PATH_SIZE, ".");
  else
    slash[slash == parent ? 1 : 0] = '\0';
  return PLM_OK;
}

static plm_status read_descriptor(int descriptor, const char *path, size_t limit, char **bytes,
                                  size_t *size, struct plm_error *error)
{
  size_t capacity = 1 << 16, used = 0;
  char *data = malloc(capacity);
  while (data != NULL) {
    if (used + 1 >= capacity) {
      char *larger = realloc(data, capacity *= 2);
      if (larger == NULL) break;
      data = larger;
    }
    const ssize_t got = read(descriptor, data + used, capacity - used - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      free(data);
      return plm_error_errno(error, "cannot read %s", path);
    }
    used += (size_t)got;
    if (used > limit) {
      free(data);
      return plm_error_set(error, PLM_LIMIT, "%s is larger than the limit of %zu bytes", path,
                           limit);
    }
    if (got == 0) {
      data[used] = '\0';
      *bytes = data;
      *size = used;
      return PLM_OK;
    }
  }
  free(data);
  return plm_error_set(error, PLM_NO_MEMORY, "out of memory while reading %s", path);
}

plm_status plm_file_read(const char *path, size_t limit_bytes, char **bytes, size_t *size,
                         struct plm_error *error)
{
  const int descriptor = plm_descriptors_open(path, O_RDONLY, 0);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  const plm_status status = read_descriptor(descriptor, path, limit_bytes, bytes, size, error);
  close(descriptor);
  return status;
}

plm_status plm_file_open_unnamed(const char *folder, int *descriptor, struct plm_error *error)
{
  *descriptor = plm_descriptors_open(folder, O_TMPFILE | O_RDWR, 0600);
  if (*descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    char path[PLM_PATH_SIZE];
    PLM_TRY(plm_path_join(path, folder, ".plm-unnamed-XXXXXX", error));
    *descriptor = mkostemp(path, O_CLOEXEC);
    if (*descriptor >= 0) unlink(path);
  }
  return *descriptor >= 0 ? PLM_OK : plm_error_errno(error, "cannot write into folder %s", folder);
}

ssize_t plm_file_read_part(int descriptor, void *bytes, size_t size, uint64_t offset)
{
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(descriptor, (char *)bytes + done, size - done, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += (size_t)got;
  }
  return (ssize_t)done;
}

plm_status plm_file_read_at(int descriptor, void *bytes, size_t size, uint64_t offset,
                            const char *path, struct plm_error *error)
{
  const ssize_t got = plm_file_read_part(descriptor, bytes, size, offset);
  if (got < 0) return plm_error_errno(error, "cannot read %s", path);
  if ((size_t)got < size)
    return plm_error_set(error, PLM_CORRUPT, "%s became shorter while it was read", path);
  return PLM_OK;
}

plm_status plm_file_write_all(int descriptor, const void *bytes, size_t size, const char *path,
                              struct plm_error *error)
{
  const char *next = bytes;
  while (size != 0) {
    const ssize_t put = write(descriptor, next, size);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return plm_error_errno(error, "cannot write %s", path);
    next += put;
    size -= (size_t)put;
  }
  return PLM_OK;
}

static plm_status write_and_sync(int descriptor, const void *bytes, size_t size, const char *path,
                                 struct plm_error *error)
{
  PLM_TRY(plm_file_write_all(descriptor, bytes, size, path, error));
  return fsync(descriptor) == 0 ? PLM_OK : plm_error_errno(error, "cannot fsync %s", path);
}

plm_status plm_file_write(const char *path, const void *bytes, size_t size, unsigned mode,
                          struct plm_error *error)
{
  const int descriptor = plm_descriptors_open(path, O_WRONLY | O_CREAT | O_TRUNC, (mode_t)mode);
  if (descriptor < 0) return plm_error_errno(error, "cannot create %s", path);
  plm_status status = write_and_sync(descriptor, bytes, size, path, error);
  if (close(descriptor) != 0 && status == PLM_OK)
    status = plm_error_errno(error, "cannot close %s", path);
  return status;
}

/* Whether the name still belongs to the file that is open. */
static plm_status has_name(int descriptor, const char *path, bool *has, struct plm_error *error)
{
  struct stat opened, named = {0};
  if (fstat(descriptor, &opened) != 0 || (lstat(path, &named) != 0 && errno != ENOENT))
    return plm_error_errno(error, "cannot stat %s", path);
  *has = opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  return PLM_OK;
}

/* Opens the temporary file and empties it. Its name is fixed, so that what a killed writer left is
 * used again by the next one; a lock keeps other writers out until the file has its final name. */
static plm_status open_temporary(const char *path, unsigned mode, int *descriptor,
                                 struct plm_error *error)
{
  plm_status status = PLM_OK;
  for (;;) {
    bool ours = true;
    *descriptor = plm_descriptors_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, (mode_t)mode);
    if (*descriptor < 0) return plm_error_errno(error, "cannot create %s", path);
    int locked;
    do locked = flock(*descriptor, LOCK_EX);
    while (locked != 0 && errno == EINTR);
    if (locked == 0) status = has_name(*descriptor, path, &ours, error);
    if (status == PLM_OK && ours) break; /* also without a lock: not every file system has them */
    close(*descriptor);                  /* another writer has just renamed it */
    if (status != PLM_OK) return status;
  }
  struct stat information;
  if (fstat(*descriptor, &information) != 0 ||
      ((information.st_mode & 0777 & ~mode) != 0 && fchmod(*descriptor, (mode_t)mode) != 0) ||
      ftruncate(*descriptor, 0) != 0)
    status = plm_error_errno(error, "cannot empty %s", path);
  if (status != PLM_OK) close(*descriptor);
  return status;
}

static plm_status file_replace(const char *path, const void *bytes, size_t size, unsigned mode,
                               bool synced, struct plm_error *error)
{
  char temporary[PLM_PATH_SIZE], parent[PLM_PATH_SIZE];
  int descriptor;
  if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", path);
  PLM_TRY(plm_path_parent(parent, path, error));
  PLM_TRY(open_temporary(temporary, mode, &descriptor, error));
  plm_status status = synced ? write_and_sync(descriptor, bytes, size, temporary, error)
                             : plm_file_write_all(descriptor, bytes, size, temporary, error);
  if (status == PLM_OK && rename(temporary, path) != 0)
    status = plm_error_errno(error, "cannot rename %s to %s", temporary, path);
  if (status != PLM_OK) unlink(temporary);
  close(descriptor); /* after fsync, this cannot lose anything; it releases the lock */
  return status == PLM_OK && synced ? plm_directory_sync(parent, error) : status;
}

plm_status plm_file_replace(const char *path, const void *bytes, size_t size, unsigned mode,
                            struct plm_error *error)
{
  return file_replace(path, bytes, size, mode, true, error);
}

plm_status plm_file_replace_unsynced(const char *path, const void *bytes, size_t size,
                                     unsigned mode, struct plm_error *error)
{
  return file_replace(path, bytes, size, mode, false, error);
}

static plm_status sync_path(const char *path, int flags, struct plm_error *error)
{
  const int descriptor = plm_descriptors_open(path, flags, 0);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  plm_status status = PLM_OK;
  if (fsync(descriptor) != 0) status = plm_error_errno(error, "cannot fsync %s", path);
  close(descriptor);
  return status;
}

plm_status plm_file_sync(const char *path, struct plm_error *error)
{
  return sync_path(path, O_RDONLY, error);
}

plm_status plm_directory_sync(const char *path, struct plm_error *error)
{
  return sync_path(path, O_RDONLY | O_DIRECTORY, error);
}

plm_status plm_parent_sync(const char *path, struct plm_error *error)
{
  char parent[PLM_PATH_SIZE];
  PLM_TRY(plm_path_parent(parent, path, error));
  return access(parent, R_OK) == 0 ? plm_directory_sync(parent, error) : PLM_OK;
}

plm_status plm_directory_make(const char *path, struct plm_error *error)
{
  char partial[PLM_PATH_SIZE];
  if (snprintf(partial, sizeof partial, "%s", path) >= (int)sizeof partial)
    return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", path);
  for (char *slash = partial + 1;; slash++) {
    const char kept = *slash;
    if (kept != '/' && kept != '\0') continue;
    *slash = '\0';
    if (mkdir(partial, 0777) == 0)
      PLM_TRY(plm_parent_sync(partial, error));
    else if (errno != EEXIST)
      return plm_error_errno(error, "cannot create folder %s", partial);
    if (kept == '\0') break;
    *slash = kept;
  }
  struct stat made;
  bool exists;
  PLM_TRY(plm_file_stat(path, &made, &exists, error));
  if (!exists || !S_ISDIR(made.st_mode))
    return plm_error_set(error, PLM_EXISTS, "%s exists and is not a folder", path);
  return PLM_OK;
}

plm_status plm_directory_next(DIR *folder, const char *path, const struct dirent **entry,
                              struct plm_error *error)
{
  errno = 0;
  *entry = readdir(folder);
  if (*entry == NULL && errno != 0) return plm_error_errno(error, "cannot list %s", path);
  return PLM_OK;
}

static int remove_entry(const char *path, const struct stat *information, int kind,
                        struct FTW *place)
{
  (void)information, (void)kind, (void)place;
  return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

plm_status plm_path_remove(const char *path, struct plm_error *error)
{
  if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
    return plm_error_errno(error, "cannot remove %s", path);
  return PLM_OK;
}

bool plm_cache_folder(const char *name, char path[PLM_PATH_SIZE])
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  const bool own = cache != NULL && cache[0] == '/';
  if (!own && (home == NULL || home[0] != '/')) return false;
  return snprintf(path, PLM_PATH_SIZE, "%s%s/plm-pipeline%s%s", own ? cache : home,
                  own ? "" : "/.cache", name[0] != '\0' ? "/" : "", name) < PLM_PATH_SIZE;
}

const char *plm_temporary_folder(void)
{
  const char *given = getenv("TMPDIR");
  return given != NULL && given[0] != '\0' ? given : "/tmp";
}

bool plm_directory_exists(const char *path)
{
  struct stat information;
  return stat(path, &information) == 0 && S_ISDIR(information.st_mode);
}

bool plm_file_exists(const char *path)
{
  struct stat information;
  return stat(path, &information) == 0;
}

plm_status plm_file_stat(const char *path, struct stat *about, bool *exists,
                         struct plm_error *error)
{
  *exists = stat(path, about) == 0;
  if (*exists || errno == ENOENT || errno == ENOTDIR) return PLM_OK;
  return plm_error_errno(error, "cannot stat %s", path);
}

plm_status plm_file_look(const char *path, bool *exists, struct plm_error *error)
{
  struct stat about;
  return plm_file_stat(path, &about, exists, error);
}

double plm_file_age_s(const char *path)
{
  struct stat information;
  if (stat(path, &information) != 0) return NAN;
  const struct timespec changed = information.st_mtim;
  return fmax(0.0, plm_clock_wall_s() - (double)changed.tv_sec - 1e-9 * (double)changed.tv_nsec);
}

plm_status plm_file_size(const char *path, uint64_t *size, struct plm_error *error)
{
  struct stat information;
  if (stat(path, &information) != 0) return plm_error_errno(error, "cannot stat %s", path);
  *size = (uint64_t)information.st_size;
  return PLM_OK;
}
