/* Fetches the corpora of a run from its head into a cache on this host (doc/feed.md#fetching). */
#ifndef PLM_COMMON_FETCH_FETCH_H
#define PLM_COMMON_FETCH_FETCH_H

#include <stdint.h>

#include "common/base/files/file.h"
#include "common/plan/mixture.h"

struct plm_fetch_options {
  const char *endpoint; /* the trainer's feed */
  const char *keys;     /* folder of the client's key */
  const char *cache;    /* folder, made if it is missing; on a local file system */
  uint64_t limit_bytes; /* of all corpora in the cache, those in use included */
};

/* The corpora of the run, in its order. They stay in the cache until they are released. */
struct plm_fetched {
  char paths[PLM_MAX_SOURCES][PLM_PATH_SIZE];
  int locks[PLM_MAX_SOURCES];
  uint32_t count;
};

/* Fetches what the cache lacks, compares every byte with the hash in corpus.json, and takes corpora
 * that nobody uses out of the cache if the limit needs it, the least recently used first. A fetch
 * that was interrupted continues where it stopped. PLM_NO_SPACE: the limit or the disk is too
 * small. PLM_CORRUPT: what came is not what corpus.json states. PLM_NOT_FOUND: the head has no
 * copy. PLM_INTERRUPTED, PLM_TERMINATED: a stop signal. Begin with {0}; release it after an error,
 * too. */
plm_status plm_fetch_corpora(const struct plm_fetch_options *options, struct plm_fetched *fetched,
                             struct plm_error *error);
void plm_fetched_release(struct plm_fetched *fetched);

#endif
