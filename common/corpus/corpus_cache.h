/* A cache of corpora on a local disk, which all processes of the host share. FOLDER/HASH is a
 * corpus, named after the hash of its data.mdb, so that equal corpora share it. FOLDER/HASH.part is
 * one that is being made. Who uses either holds a lock on FOLDER/HASH.lock, whose time of change
 * says when it was last used. Packers copy corpora to it (plm_corpus_options), and
 * `plm-pipeline join` fetches them (common/fetch). */
#ifndef PLM_COMMON_CORPUS_CORPUS_CACHE_H
#define PLM_COMMON_CORPUS_CORPUS_CACHE_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/corpus/corpus_description.h"

struct plm_corpus_cache {
  const char *folder;
  plm_corpus_stop *stop;       /* asked while it waits for a lock; NULL: it waits on */
  struct plm_advance *advance; /* told that it waits; or NULL */
};

/* What makes a corpus that the cache lacks. */
struct plm_corpus_maker {
  /* Makes it in the folder `part` with synced files. An interrupted one may be there. */
  plm_status (*make)(void *context, const char *part, struct plm_error *error);
  void *context;
};

/* Makes the folder if it is missing. PLM_CONFIG: it lies on a remote file system. */
plm_status plm_corpus_cache_open(const char *folder, struct plm_error *error);

/* FOLDER/HASH followed by ending: "", ".part" or ".lock". */
plm_status plm_corpus_cache_path(char path[PLM_PATH_SIZE], const char *folder, const char *hash,
                                 const char *ending, struct plm_error *error);

/* Finds the corpus whose data.mdb is `files`, or has it made and checks its size and its first and
 * last MiB. Several processes make it only once. local receives its folder; it stays there until
 * the caller closes *lock. */
plm_status plm_corpus_cache_provide(const struct plm_corpus_cache *cache,
                                    const struct plm_corpus_files *files,
                                    const struct plm_corpus_maker *maker, char local[PLM_PATH_SIZE],
                                    int *lock, struct plm_error *error);

#endif
