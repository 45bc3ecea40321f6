/* The cache of fetched corpora. CACHE/HASH is a corpus, named after the hash of its data.mdb;
 * CACHE/HASH.part is one that is being fetched; who uses either holds a lock on CACHE/HASH.lock,
 * whose time of change says when it was last used. plm_corpus_cache keeps its copies there as well.
 */
#ifndef PLM_COMMON_FETCH_FETCH_CACHE_H
#define PLM_COMMON_FETCH_FETCH_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/file.h"

/* The default folder: $XDG_CACHE_HOME/plm-pipeline/corpora, or that in ~/.cache. PLM_CONFIG if
 * neither variable is set. */
plm_status plm_fetch_cache_folder(char folder[PLM_PATH_SIZE], struct plm_error *error);

/* Locks an entry, and notes that it is used now. exclusive: for whoever fetches it. wait: until
 * others have released it; otherwise PLM_BUSY. The caller closes *lock. */
plm_status plm_fetch_cache_lock(const char *folder, const char *hash, bool exclusive, bool wait,
                                int *lock, struct plm_error *error);

/* Removes entries that nobody uses, the least recently used first, until `bytes` more fit into the
 * limit. `keep` is not removed, and what it already has counts as part of `bytes`. PLM_NO_SPACE: it
 * is not enough, or the disk has less room. */
plm_status plm_fetch_cache_make_room(const char *folder, const char *keep, uint64_t bytes,
                                     uint64_t limit_bytes, struct plm_error *error);

#endif
