/* Making and removing the folder of a gang. */
#include "stages/supervisor/gang/gang_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".mpi"

enum { HASH_CHARACTERS = 16 /* of 32; Open MPI makes long paths below the folder */ };

static bool gang_folder_is_ours(int folder)
{
  struct stat info;
  return fstat(folder, &info) == 0 && info.st_uid == getuid() && (info.st_mode & 077) == 0;
}

/* Opens and locks it with `operation`. -1: it is missing, locked by others, or not ours. */
static int open_locked(const char *path, int operation)
{
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  if (gang_folder_is_ours(folder) && flock(folder, operation | LOCK_NB) == 0) return folder;
  close(folder);
  return -1;
}

static void remove_abandoned(const char *parent, const char *prefix)
{
  DIR *entries = opendir(parent);
  if (entries == NULL) return;
  for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    char path[PLM_PATH_SIZE];
    const size_t length = strlen(entry->d_name), ending = sizeof SUFFIX - 1;
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || length < ending ||
        strcmp(entry->d_name + length - ending, SUFFIX) != 0 ||
        plm_path_join(path, parent, entry->d_name, NULL) != PLM_OK)
      continue;
    const int folder = open_locked(path, LOCK_EX);
    if (folder < 0) continue;
    (void)plm_path_remove(path, NULL);
    close(folder);
  }
  closedir(entries);
}

plm_status plm_gang_folder_make(const char *socket_path, struct plm_gang_folder *folder,
                                struct plm_error *error)
{
  char parent[256] = "/dev/shm", prefix[64]; /* memory, and a short path */
  const char *name = strrchr(socket_path, '/');
  PLM_ASSERT(name != NULL && (size_t)(name - socket_path) < sizeof parent);
  if (access(parent, W_OK | X_OK) != 0)
    snprintf(parent, sizeof parent, "%.*s", (int)(name - socket_path), socket_path);
  const size_t most = sizeof "plm-" - 1 + HASH_CHARACTERS, length = strcspn(name + 1, ".");
  snprintf(prefix, sizeof prefix, "%.*s-%u-", (int)(length < most ? length : most), name + 1,
           (unsigned)getuid());
  remove_abandoned(parent, prefix);
  snprintf(folder->path, sizeof folder->path, "%s/%s%d" SUFFIX, parent, prefix, (int)getpid());
  if (mkdir(folder->path, 0700) != 0 && errno != EEXIST) {
    const plm_status status = plm_error_errno(error, "%s", folder->path);
    folder->path[0] = '\0';
    return status;
  }
  folder->lock = open_locked(folder->path, LOCK_SH);
  if (folder->lock >= 0) return PLM_OK;
  plm_error_set(error, PLM_FAILURE, "%s must be a folder that belongs to you and has mode 0700",
                folder->path);
  folder->path[0] = '\0';
  return plm_error_hint(error, "remove it");
}

void plm_gang_folder_remove(struct plm_gang_folder *folder)
{
  if (folder->path[0] == '\0') return;
  (void)plm_path_remove(folder->path, NULL);
  close(folder->lock);
  folder->path[0] = '\0';
}
