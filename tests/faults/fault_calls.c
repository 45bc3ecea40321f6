/* faults.so: replaces the C library's calls that touch the disk. A call about the watched folder is
 * counted, logged or made to fail. See fault_log.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/faults/fault_log.h"
#include "tests/support/harness/open_call.h"

/* The C library's own function of this name, as `real`. */
#define REAL(name)               \
  static __typeof__(name) *real; \
  if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Runs EXPRESSION between fault_begin and fault_end, unless the call has to fail. */
#define RUN(call, result, failure, expression) \
  do {                                         \
    fault_begin(&(call));                      \
    if ((call).error != 0)                     \
      errno = (call).error;                    \
    else                                       \
      (result) = (expression);                 \
    fault_end(&(call), (result) == (failure)); \
  } while (0)

static bool about_path(struct fault_call *call, const char *path, bool follow)
{
  return !fault_inside() && fault_path_is_watched(AT_FDCWD, path, follow, call->path);
}

static bool about_descriptor(struct fault_call *call, int descriptor)
{
  return !fault_inside() && descriptor >= 0 && fault_descriptor_is_watched(descriptor, call->path);
}

#pragma GCC visibility push(default) /* everything from here on is found before the C library's */

/* ---- opening and closing ------------------------------------------------------------------- */

static const char *opening(int flags)
{
  return flags & O_CREAT ? "create" : "open";
}

#define OPEN(function)                                                                   \
  int function(const char *path, int flags, ...)                                         \
  {                                                                                      \
    va_list arguments;                                                                   \
    va_start(arguments, flags);                                                          \
    const mode_t mode = open_call_mode(flags, arguments);                                \
    va_end(arguments);                                                                   \
    REAL(function);                                                                      \
    struct fault_call call = {.name = opening(flags)};                                   \
    if (!about_path(&call, path, !(flags & O_NOFOLLOW))) return real(path, flags, mode); \
    int result = -1;                                                                     \
    RUN(call, result, -1, real(path, flags, mode));                                      \
    return result;                                                                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(function)                                                           \
  int function(int directory, const char *path, int flags, ...)                    \
  {                                                                                \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = open_call_mode(flags, arguments);                          \
    va_end(arguments);                                                             \
    REAL(function);                                                                \
    struct fault_call call = {.name = opening(flags)};                             \
    if (fault_inside() ||                                                          \
        !fault_path_is_watched(directory, path, !(flags & O_NOFOLLOW), call.path)) \
      return real(directory, path, flags, mode);                                   \
    int result = -1;                                                               \
    RUN(call, result, -1, real(directory, path, flags, mode));                     \
    return result;                                                                 \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(function)                                                    \
  FILE *function(const char *path, const char *mode)                       \
  {                                                                        \
    REAL(function);                                                        \
    struct fault_call call = {.name = mode[0] == 'r' ? "open" : "create"}; \
    if (!about_path(&call, path, true)) return real(path, mode);           \
    FILE *result = NULL;                                                   \
    RUN(call, result, NULL, real(path, mode));                             \
    return result;                                                         \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* As on Linux, the descriptor is closed even if close fails. */
int close(int descriptor)
{
  REAL(close);
  struct fault_call call = {.name = "close"};
  if (!about_descriptor(&call, descriptor)) return real(descriptor);
  int result = -1;
  fault_begin(&call);
  result = real(descriptor);
  if (call.error != 0) errno = call.error, result = -1;
  fault_end(&call, result != 0);
  return result;
}

int fclose(FILE *file)
{
  REAL(fclose);
  struct fault_call call = {.name = "close"};
  if (!about_descriptor(&call, fileno(file))) return real(file);
  int result = EOF;
  fault_begin(&call);
  result = real(file);
  if (call.error != 0) errno = call.error, result = EOF;
  fault_end(&call, result != 0);
  return result;
}

/* ---- reading and writing ------------------------------------------------------------------- */

/* A full disk stores half of the bytes and fails at the next write, as a real one does. */
static __thread int full_descriptor; /* plus 1 */

static void begin_write(struct fault_call *call, int descriptor, size_t size)
{
  fault_begin(call);
  if (full_descriptor == descriptor + 1)
    call->error = ENOSPC;
  else if (call->error == ENOSPC && size > 1)
    call->half = true;
  full_descriptor = call->half ? descriptor + 1 : 0;
}

/* PARAMETERS are the function's own; ALL and HALF are the arguments that write all or half. */
#define WRITE(function, shown, parameters, all, half_of_it)    \
  ssize_t function parameters                                  \
  {                                                            \
    REAL(function);                                            \
    struct fault_call call = {.name = (shown)};                \
    if (!about_descriptor(&call, descriptor)) return real all; \
    ssize_t result = -1;                                       \
    begin_write(&call, descriptor, size);                      \
    if (call.half)                                             \
      result = real half_of_it;                                \
    else if (call.error != 0)                                  \
      errno = call.error;                                      \
    else                                                       \
      result = real all;                                       \
    fault_end(&call, result < 0);                              \
    return result;                                             \
  }
WRITE(write, "write", (int descriptor, const void *bytes, size_t size), (descriptor, bytes, size),
      (descriptor, bytes, size / 2))
WRITE(pwrite, "pwrite", (int descriptor, const void *bytes, size_t size, off_t offset),
      (descriptor, bytes, size, offset), (descriptor, bytes, size / 2, offset))
WRITE(pwrite64, "pwrite", (int descriptor, const void *bytes, size_t size, off64_t offset),
      (descriptor, bytes, size, offset), (descriptor, bytes, size / 2, offset))

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
  REAL(writev);
  struct fault_call call = {.name = "writev"};
  if (!about_descriptor(&call, descriptor)) return real(descriptor, parts, count);
  ssize_t result = -1;
  RUN(call, result, -1, real(descriptor, parts, count));
  return result;
}

ssize_t read(int descriptor, void *bytes, size_t size)
{
  REAL(read);
  struct fault_call call = {.name = "read"};
  if (!about_descriptor(&call, descriptor)) return real(descriptor, bytes, size);
  ssize_t result = -1;
  RUN(call, result, -1, real(descriptor, bytes, size));
  return result;
}

#define PREAD(function, offset_type)                                                        \
  ssize_t function(int descriptor, void *bytes, size_t size, offset_type offset)            \
  {                                                                                         \
    REAL(function);                                                                         \
    struct fault_call call = {.name = "pread"};                                             \
    if (!about_descriptor(&call, descriptor)) return real(descriptor, bytes, size, offset); \
    ssize_t result = -1;                                                                    \
    RUN(call, result, -1, real(descriptor, bytes, size, offset));                           \
    return result;                                                                          \
  }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define MMAP(function, offset_type)                                                            \
  void *function(void *address, size_t size, int protection, int flags, int descriptor,        \
                 offset_type offset)                                                           \
  {                                                                                            \
    REAL(function);                                                                            \
    struct fault_call call = {.name = "mmap"};                                                 \
    if (!about_descriptor(&call, descriptor))                                                  \
      return real(address, size, protection, flags, descriptor, offset);                       \
    void *result = MAP_FAILED;                                                                 \
    RUN(call, result, MAP_FAILED, real(address, size, protection, flags, descriptor, offset)); \
    return result;                                                                             \
  }
/* NOLINTBEGIN(readability-function-size): the parameters are the C library's */
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
/* NOLINTEND(readability-function-size) */

#define TRUNCATE(function, offset_type)                                      \
  int function(int descriptor, offset_type size)                             \
  {                                                                          \
    REAL(function);                                                          \
    struct fault_call call = {.name = "ftruncate"};                          \
    if (!about_descriptor(&call, descriptor)) return real(descriptor, size); \
    int result = -1;                                                         \
    RUN(call, result, -1, real(descriptor, size));                           \
    return result;                                                           \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define FALLOCATE(function, offset_type)                                                   \
  int function(int descriptor, int mode, offset_type offset, offset_type size)             \
  {                                                                                        \
    REAL(function);                                                                        \
    struct fault_call call = {.name = "fallocate"};                                        \
    if (!about_descriptor(&call, descriptor)) return real(descriptor, mode, offset, size); \
    int result = -1;                                                                       \
    RUN(call, result, -1, real(descriptor, mode, offset, size));                           \
    return result;                                                                         \
  }
FALLOCATE(fallocate, off_t)
FALLOCATE(fallocate64, off64_t)

#define POSIX_FALLOCATE(function, offset_type)                                        \
  int function(int descriptor, offset_type offset, offset_type size)                  \
  {                                                                                   \
    REAL(function);                                                                   \
    struct fault_call call = {.name = "fallocate"};                                   \
    if (!about_descriptor(&call, descriptor)) return real(descriptor, offset, size);  \
    fault_begin(&call);                                                               \
    const int result = call.error != 0 ? call.error : real(descriptor, offset, size); \
    if (result != 0) errno = result;                                                  \
    fault_end(&call, result != 0);                                                    \
    return result;                                                                    \
  }
POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

/* ---- what makes things durable ------------------------------------------------------------- */

#define SYNC(function)                                                 \
  int function(int descriptor)                                         \
  {                                                                    \
    REAL(function);                                                    \
    struct fault_call call = {.name = #function};                      \
    if (!about_descriptor(&call, descriptor)) return real(descriptor); \
    int result = -1;                                                   \
    fault_begin(&call);                                                \
    if (call.error != 0)                                               \
      errno = call.error;                                              \
    else                                                               \
      result = real(descriptor);                                       \
    if (result == 0) fault_keep(descriptor);                           \
    fault_end(&call, result != 0);                                     \
    return result;                                                     \
  }
SYNC(fsync)
SYNC(fdatasync)

/* ---- names --------------------------------------------------------------------------------- */

static bool about_two(struct fault_call *call, const char *from, const char *to)
{
  char other[PATH_MAX];
  if (fault_inside()) return false;
  const bool first = fault_path_is_watched(AT_FDCWD, from, false, call->path);
  const bool second = fault_path_is_watched(AT_FDCWD, to, false, other);
  if (second) snprintf(call->other, sizeof call->other, "%s", other);
  return first || second;
}

int rename(const char *from, const char *to)
{
  REAL(rename);
  struct fault_call call = {.name = "rename"};
  if (!about_two(&call, from, to)) return real(from, to);
  int result = -1;
  RUN(call, result, -1, real(from, to));
  return result;
}

#define RENAMEAT(function, parameters, all)                                                    \
  int function parameters                                                                      \
  {                                                                                            \
    REAL(function);                                                                            \
    struct fault_call call = {.name = "rename"};                                               \
    if (from_directory != AT_FDCWD || to_directory != AT_FDCWD || !about_two(&call, from, to)) \
      return real all;                                                                         \
    int result = -1;                                                                           \
    RUN(call, result, -1, real all);                                                           \
    return result;                                                                             \
  }
RENAMEAT(renameat, (int from_directory, const char *from, int to_directory, const char *to),
         (from_directory, from, to_directory, to))
RENAMEAT(renameat2,
         (int from_directory, const char *from, int to_directory, const char *to,
          unsigned int flags),
         (from_directory, from, to_directory, to, flags))

int link(const char *from, const char *to)
{
  REAL(link);
  struct fault_call call = {.name = "link"};
  if (!about_two(&call, from, to)) return real(from, to);
  int result = -1;
  RUN(call, result, -1, real(from, to));
  return result;
}

int symlink(const char *target, const char *path)
{
  REAL(symlink);
  struct fault_call call = {.name = "symlink"};
  if (!about_path(&call, path, false)) return real(target, path);
  snprintf(call.other, sizeof call.other, "%s", target);
  int result = -1;
  RUN(call, result, -1, real(target, path));
  return result;
}

#define REMOVE(function)                                    \
  int function(const char *path)                            \
  {                                                         \
    REAL(function);                                         \
    struct fault_call call = {.name = #function};           \
    if (!about_path(&call, path, false)) return real(path); \
    int result = -1;                                        \
    RUN(call, result, -1, real(path));                      \
    return result;                                          \
  }
REMOVE(unlink)
REMOVE(remove)
REMOVE(rmdir)

int mkdir(const char *path, mode_t mode)
{
  REAL(mkdir);
  struct fault_call call = {.name = "mkdir"};
  if (!about_path(&call, path, false)) return real(path, mode);
  int result = -1;
  RUN(call, result, -1, real(path, mode));
  return result;
}

int chmod(const char *path, mode_t mode)
{
  REAL(chmod);
  struct fault_call call = {.name = "chmod"};
  if (!about_path(&call, path, true)) return real(path, mode);
  int result = -1;
  RUN(call, result, -1, real(path, mode));
  return result;
}

int fchmod(int descriptor, mode_t mode)
{
  REAL(fchmod);
  struct fault_call call = {.name = "chmod"};
  if (!about_descriptor(&call, descriptor)) return real(descriptor, mode);
  int result = -1;
  RUN(call, result, -1, real(descriptor, mode));
  return result;
}

/* ---- looking ------------------------------------------------------------------------------- */

#define LOOK(function, follow, parameters, all)            \
  int function parameters                                  \
  {                                                        \
    REAL(function);                                        \
    struct fault_call call = {.name = #function};          \
    if (!about_path(&call, path, follow)) return real all; \
    int result = -1;                                       \
    RUN(call, result, -1, real all);                       \
    return result;                                         \
  }
LOOK(stat, true, (const char *path, struct stat *information), (path, information))
LOOK(stat64, true, (const char *path, struct stat64 *information), (path, information))
LOOK(lstat, false, (const char *path, struct stat *information), (path, information))
LOOK(lstat64, false, (const char *path, struct stat64 *information), (path, information))
LOOK(access, true, (const char *path, int mode), (path, mode))

#define STATAT(function, type)                                                              \
  int function(int directory, const char *path, struct type *information, int flags)        \
  {                                                                                         \
    REAL(function);                                                                         \
    struct fault_call call = {.name = flags & AT_SYMLINK_NOFOLLOW ? "lstat" : "stat"};      \
    if (fault_inside() || path[0] == '\0' ||                                                \
        !fault_path_is_watched(directory, path, !(flags & AT_SYMLINK_NOFOLLOW), call.path)) \
      return real(directory, path, information, flags);                                     \
    int result = -1;                                                                        \
    RUN(call, result, -1, real(directory, path, information, flags));                       \
    return result;                                                                          \
  }
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)

#define FSTAT(function, type)                                                       \
  int function(int descriptor, struct type *information)                            \
  {                                                                                 \
    REAL(function);                                                                 \
    struct fault_call call = {.name = "fstat"};                                     \
    if (!about_descriptor(&call, descriptor)) return real(descriptor, information); \
    int result = -1;                                                                \
    RUN(call, result, -1, real(descriptor, information));                           \
    return result;                                                                  \
  }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

ssize_t readlink(const char *path, char *target, size_t size)
{
  REAL(readlink);
  struct fault_call call = {.name = "readlink"};
  if (!about_path(&call, path, false)) return real(path, target, size);
  ssize_t result = -1;
  RUN(call, result, -1, real(path, target, size));
  return result;
}

/* ---- lists --------------------------------------------------------------------------------- */

DIR *opendir(const char *path)
{
  REAL(opendir);
  struct fault_call call = {.name = "opendir"};
  if (!about_path(&call, path, true)) return real(path);
  DIR *result = NULL;
  RUN(call, result, NULL, real(path));
  return result;
}

/* NULL also means the end of the list; errno tells which. */
#define READDIR(function, entry)                                            \
  struct entry *function(DIR *directory)                                    \
  {                                                                         \
    REAL(function);                                                         \
    struct fault_call call = {.name = "readdir"};                           \
    if (!about_descriptor(&call, dirfd(directory))) return real(directory); \
    struct entry *result = NULL;                                            \
    fault_begin(&call);                                                     \
    if (call.error != 0)                                                    \
      errno = call.error;                                                   \
    else                                                                    \
      result = real(directory);                                             \
    fault_end(&call, call.error != 0);                                      \
    return result;                                                          \
  }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/* These two open and read folders inside the C library, so each counts as one call. The functions
 * that they call back count for themselves. */
int scandir(const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
            int (*order)(const struct dirent **, const struct dirent **))
{
  REAL(scandir);
  struct fault_call call = {.name = "scandir"};
  if (!about_path(&call, path, true)) return real(path, list, filter, order);
  int result = -1;
  RUN(call, result, -1, real(path, list, filter, order));
  return result;
}

int nftw(const char *path, __nftw_func_t visit, int descriptors, int flags)
{
  REAL(nftw);
  struct fault_call call = {.name = "nftw"};
  if (!about_path(&call, path, false)) return real(path, visit, descriptors, flags);
  fault_begin(&call);
  if (call.error != 0) errno = call.error;
  fault_end(&call, call.error != 0);
  return call.error != 0 ? -1 : real(path, visit, descriptors, flags);
}
