/* Sizes and ages of the entries of a cache: see fetch_cache.h. */
#include "common/fetch/fetch_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/numbers/hash.h"
#include "common/corpus/corpus_cache.h"

enum { ENTRIES_MOST = 4096 };

struct entry {
  char hash[PLM_HASH_HEX_SIZE];
  uint64_t bytes; /* of the corpus and of the part */
  struct timespec used;
};

struct entries {
  struct entry *items; /* owned */
  size_t count;
};

plm_status plm_fetch_cache_folder(char folder[PLM_PATH_SIZE], struct plm_error *error)
{
  if (plm_cache_folder("corpora", folder)) return PLM_OK;
  (void)plm_error_set(error, PLM_CONFIG, "no folder for fetched corpora is known");
  return plm_error_hint(error, "name one with --cache DIR, or set HOME");
}

/* Bytes of the two files in a folder; 0 if there is none. */
static uint64_t bytes_in(const char *folder)
{
  static const char *const names[] = {PLM_CORPUS_DATA, PLM_CORPUS_DESCRIPTION};
  uint64_t sum = 0;
  for (int i = 0; i < 2; i++) {
    char path[PLM_PATH_SIZE];
    uint64_t size;
    if (plm_path_join(path, folder, names[i], NULL) == PLM_OK &&
        plm_file_size(path, &size, NULL) == PLM_OK)
      sum += size;
  }
  return sum;
}

static plm_status fetch_cache_measure(const char *folder, struct entry *entry,
                                      struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct stat information;
  PLM_TRY(plm_corpus_cache_path(path, folder, entry->hash, ".lock", error));
  if (stat(path, &information) == 0) entry->used = information.st_mtim;
  PLM_TRY(plm_corpus_cache_path(path, folder, entry->hash, "", error));
  entry->bytes = bytes_in(path);
  PLM_TRY(plm_corpus_cache_path(path, folder, entry->hash, ".part", error));
  entry->bytes += bytes_in(path);
  return PLM_OK;
}

static int by_use(const void *a, const void *b)
{
  const struct timespec *x = &((const struct entry *)a)->used,
                        *y = &((const struct entry *)b)->used;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Every entry has a lock file, so these are listed. */
static plm_status fetch_cache_list(const char *folder, struct entries *entries,
                                   struct plm_error *error)
{
  DIR *open = opendir(folder);
  if (open == NULL) return plm_error_errno(error, "cannot read %s", folder);
  const struct dirent *found;
  plm_status status;
  while ((status = plm_directory_next(open, folder, &found, error)) == PLM_OK && found != NULL) {
    const size_t length = strlen(found->d_name);
    if (length != PLM_HASH_HEX_SIZE - 1 + strlen(".lock") ||
        strcmp(found->d_name + PLM_HASH_HEX_SIZE - 1, ".lock") != 0 ||
        entries->count == ENTRIES_MOST)
      continue;
    struct entry *entry = &entries->items[entries->count];
    *entry = (struct entry){.bytes = 0};
    memcpy(entry->hash, found->d_name, PLM_HASH_HEX_SIZE - 1);
    status = fetch_cache_measure(folder, entry, error);
    if (status != PLM_OK) break;
    entries->count++;
  }
  closedir(open);
  if (status == PLM_OK) qsort(entries->items, entries->count, sizeof entries->items[0], by_use);
  return status;
}

/* Removes an entry unless it is in use. *removed: it is gone. The lock file stays: whoever waits
 * for it would otherwise hold a lock that nobody else sees. */
static plm_status evict(const char *folder, const struct entry *entry, bool *removed,
                        struct plm_error *error)
{
  char path[PLM_PATH_SIZE], lock_path[PLM_PATH_SIZE];
  *removed = false;
  PLM_TRY(plm_corpus_cache_path(lock_path, folder, entry->hash, ".lock", error));
  const int lock = open(lock_path, O_RDWR | O_CLOEXEC);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (lock >= 0) close(lock);
    return PLM_OK;
  }
  plm_info("removing the corpus %s from %s, to make room", entry->hash, folder);
  plm_status status = plm_corpus_cache_path(path, folder, entry->hash, "", error);
  if (status == PLM_OK) status = plm_path_remove(path, error);
  if (status == PLM_OK) status = plm_corpus_cache_path(path, folder, entry->hash, ".part", error);
  if (status == PLM_OK) status = plm_path_remove(path, error);
  close(lock);
  *removed = status == PLM_OK;
  return status;
}

static plm_status fit(const char *folder, const char *keep, uint64_t bytes, uint64_t limit_bytes,
                      const struct entries *entries, struct plm_error *error)
{
  uint64_t others = 0, kept = 0;
  for (size_t i = 0; i < entries->count; i++)
    *(strcmp(entries->items[i].hash, keep) == 0 ? &kept : &others) += entries->items[i].bytes;
  for (size_t i = 0; i < entries->count && others + bytes > limit_bytes; i++) {
    const struct entry *entry = &entries->items[i];
    bool removed = false;
    if (entry->bytes == 0 || strcmp(entry->hash, keep) == 0) continue;
    PLM_TRY(evict(folder, entry, &removed, error));
    if (removed) others -= entry->bytes;
  }
  struct statvfs disk;
  if (others + bytes > limit_bytes) {
    (void)plm_error_set(error, PLM_NO_SPACE,
                        "the cache %s may hold %.2f GB; the corpus has %.2f GB, and corpora that "
                        "are in use have %.2f GB",
                        folder, 1e-9 * (double)limit_bytes, 1e-9 * (double)bytes,
                        1e-9 * (double)others);
    return plm_error_hint(error, "raise --cache-limit, or choose another --cache DIR");
  }
  if (statvfs(folder, &disk) != 0) return plm_error_errno(error, "cannot look at %s", folder);
  const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
  if (bytes <= kept || bytes - kept <= room) return PLM_OK;
  (void)plm_error_set(error, PLM_NO_SPACE, "%s has room for %.2f GB; the corpus needs %.2f GB more",
                      folder, 1e-9 * (double)room, 1e-9 * (double)(bytes - kept));
  return plm_error_hint(error, "free some space, or choose another --cache DIR");
}

plm_status plm_fetch_cache_make_room(const char *folder, const char *keep, uint64_t bytes,
                                     uint64_t limit_bytes, struct plm_error *error)
{
  struct entries entries = {.items = plm_alloc(ENTRIES_MOST * sizeof(struct entry))};
  plm_status status = fetch_cache_list(folder, &entries, error);
  if (status == PLM_OK) status = fit(folder, keep, bytes, limit_bytes, &entries, error);
  free(entries.items);
  return status;
}
