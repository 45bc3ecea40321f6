/* The cache of fetched corpora (common/corpus/corpus_cache.h): its default folder, and its limit.
 */
#ifndef PLM_COMMON_FETCH_FETCH_CACHE_H
#define PLM_COMMON_FETCH_FETCH_CACHE_H

#include <stdint.h>

#include "common/base/files/file.h"

/* The default folder: $XDG_CACHE_HOME/plm-pipeline/corpora, or that in ~/.cache. PLM_CONFIG if
 * neither variable is set. */
plm_status plm_fetch_cache_folder(char folder[PLM_PATH_SIZE], struct plm_error *error);

/* Removes entries that nobody uses, the least recently used first, until `bytes` more fit into the
 * limit. `keep` is not removed, and what it already has counts as part of `bytes`. PLM_NO_SPACE: it
 * is not enough, or the disk has less room. */
plm_status plm_fetch_cache_make_room(const char *folder, const char *keep, uint64_t bytes,
                                     uint64_t limit_bytes, struct plm_error *error);

#endif
