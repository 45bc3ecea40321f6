/* Locking and removing temporary folders. */
#include "common/base/process/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"

int plm_leftovers_lock(const char *path)
{
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  const int reason = errno;
  close(folder);
  errno = reason;
  return -1;
}

void plm_leftovers_remove(const char *parent, const char *prefix, const char *letters,
                          const char *command)
{
  const size_t length = strlen(prefix);
  DIR *folder = opendir(parent);
  if (folder == NULL) return;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char path[PLM_PATH_SIZE];
    const char *rest = entry->d_name + length;
    if (strncmp(entry->d_name, prefix, length) != 0 || rest[strspn(rest, letters)] != '\0' ||
        plm_path_join(path, parent, entry->d_name, NULL) != PLM_OK)
      continue;
    const int lock = plm_leftovers_lock(path);
    if (lock < 0) continue;
    plm_info("removing %s, which an interrupted %s left", path, command);
    (void)plm_path_remove(path, NULL);
    close(lock);
  }
  closedir(folder);
}
