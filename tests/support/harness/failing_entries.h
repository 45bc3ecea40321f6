/* For a test program whose disk fails (failing_disk.h): calls that look at, list, link or remove
 * entries of folders fail too, each in its turn, and fopen, which does not call open here. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FAILING_ENTRIES_H
#define PLM_TESTS_SUPPORT_HARNESS_FAILING_ENTRIES_H

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/open_call.h"

int stat(const char *path, struct stat *about)
{
  return failing_disk_fails("stat", path) ? -1 : fstatat(AT_FDCWD, path, about, 0);
}

int lstat(const char *path, struct stat *about)
{
  return failing_disk_fails("lstat", path) ? -1
                                           : fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}

FILE *fopen(const char *path, const char *mode)
{
  static FILE *(*_Atomic libraries)(const char *, const char *);
  if (libraries == NULL) libraries = dlsym(RTLD_NEXT, "fopen");
  return failing_disk_fails("fopen", path) ? NULL : libraries(path, mode);
}

int unlink(const char *path)
{
  return failing_disk_fails("unlink", path) ? -1 : unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
  return failing_disk_fails("rmdir", path) ? -1 : unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int symlink(const char *to, const char *path)
{
  return failing_disk_fails("symlink", path) ? -1 : symlinkat(to, AT_FDCWD, path);
}

DIR *opendir(const char *path)
{
  enum { FLAGS = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
  const int folder = failing_disk_fails("opendir", path) ? -1 : open_call_run(path, FLAGS, 0);
  return folder < 0 ? NULL : fdopendir(folder);
}

/* The next entry of a folder; a call that fails has the path of the folder. */
struct dirent *readdir(DIR *folder)
{
  char entry[32], path[PLM_PATH_SIZE];
  snprintf(entry, sizeof entry, "/proc/self/fd/%d", dirfd(folder));
  const ssize_t length = readlink(entry, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  return failing_disk_fails("readdir", path) ? NULL : (struct dirent *)readdir64(folder);
}

#endif
