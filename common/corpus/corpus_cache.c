/* Finds corpora in a cache, or has them made there: see corpus_cache.h. */
#include "common/corpus/corpus_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/numbers/hash.h"

plm_status plm_corpus_cache_open(const char *folder, struct plm_error *error)
{
  PLM_TRY(plm_directory_make(folder, error)); /* the kind of a missing folder is not known */
  const char *kind = plm_corpus_remote_kind(folder);
  if (kind == NULL) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "the cache %s lies on a remote file system (%s)", folder, kind);
  return plm_error_hint(error, "choose a folder on a local disk");
}

plm_status plm_corpus_cache_path(char path[PLM_PATH_SIZE], const char *folder, const char *hash,
                                 const char *ending, struct plm_error *error)
{
  if (snprintf(path, PLM_PATH_SIZE, "%s/%s%s", folder, hash, ending) < PLM_PATH_SIZE) return PLM_OK;
  return plm_error_set(error, PLM_LIMIT, "path %.200s is too long", folder);
}

/* Locks an entry, and notes that it is used now. exclusive: for whoever makes it. wait: until
 * others have released it; otherwise PLM_BUSY. The caller closes *lock. */
static plm_status lock_entry(const struct plm_corpus_cache *cache, const char *hash, bool exclusive,
                             bool wait, int *lock, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  (void)plm_corpus_cache_path(path, cache->folder, hash, ".lock", NULL); /* fits, as ".part" does */
  *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (*lock < 0) return plm_error_errno(error, "cannot open %s", path);
  const int how = (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
  while (flock(*lock, how) != 0) {
    plm_status status = PLM_OK;
    if (errno != EWOULDBLOCK && errno != EINTR)
      status = plm_error_errno(error, "cannot lock %s", path);
    else if (!wait)
      status = plm_error_set(error, PLM_BUSY, "%s is in use", path);
    else if (cache->stop != NULL)
      status = cache->stop("", error);
    if (status != PLM_OK) {
      close(*lock);
      *lock = -1;
      return status;
    }
    plm_advance_by(cache->advance, 0);
    const struct timespec pause = {.tv_nsec = 100 * 1000000L};
    nanosleep(&pause, NULL);
  }
  (void)futimens(*lock, NULL); /* if it fails, the entry only looks older */
  return PLM_OK;
}

static plm_status check_whole(const char *folder, const struct plm_corpus_files *files,
                              struct plm_error *error)
{
  char data[PLM_PATH_SIZE];
  struct plm_corpus_description held;
  PLM_TRY(plm_corpus_description_read(folder, &held, error));
  plm_corpus_description_deinit(&held);
  (void)plm_path_join(data, folder, PLM_CORPUS_DATA, NULL); /* shorter than that of corpus.json */
  return plm_corpus_check_edges(data, files, error);
}

/* Makes the corpus under its name. The caller has locked the entry for itself. */
static plm_status make_entry(const char *folder, const char *local, const char *part,
                             const struct plm_corpus_files *files,
                             const struct plm_corpus_maker *maker, struct plm_error *error)
{
  PLM_TRY(maker->make(maker->context, part, error));
  const plm_status status = check_whole(part, files, error);
  if (status == PLM_CORRUPT) (void)plm_path_remove(part, NULL);
  PLM_TRY(status);
  PLM_TRY(plm_directory_sync(part, error));
  PLM_TRY(plm_path_remove(local, error)); /* a damaged one */
  if (rename(part, local) != 0)
    return plm_error_errno(error, "cannot rename %s to %s", part, local);
  return plm_directory_sync(folder, error);
}

/* Between making a corpus and the shared lock on it somebody may remove it again; then it is made
 * once more. */
plm_status plm_corpus_cache_provide(const struct plm_corpus_cache *cache,
                                    const struct plm_corpus_files *files,
                                    const struct plm_corpus_maker *maker, char local[PLM_PATH_SIZE],
                                    int *lock, struct plm_error *error)
{
  char hash[PLM_HASH_HEX_SIZE], part[PLM_PATH_SIZE];
  *lock = -1;
  plm_hash_to_hex(files->whole, hash);
  PLM_TRY(plm_corpus_cache_path(part, cache->folder, hash, ".part", error));
  (void)plm_corpus_cache_path(local, cache->folder, hash, "", NULL);
  for (;;) {
    PLM_TRY(lock_entry(cache, hash, false, true, lock, error));
    if (check_whole(local, files, NULL) == PLM_OK) return PLM_OK;
    close(*lock);
    *lock = -1;
    int own;
    plm_status status = lock_entry(cache, hash, true, false, &own, error);
    if (status == PLM_BUSY) {
      plm_info("waiting for another process of this host that puts the same corpus into %s",
               cache->folder);
      status = lock_entry(cache, hash, true, true, &own, error);
    }
    PLM_TRY(status);
    if (check_whole(local, files, NULL) != PLM_OK)
      status = make_entry(cache->folder, local, part, files, maker, error);
    close(own);
    PLM_TRY(status);
  }
}
