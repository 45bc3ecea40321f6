/* The LMDB environment of a corpus under construction: records are appended in the order of their
 * keys, transactions are bounded in size, and the map grows as needed. */
#ifndef PLM_STAGES_INGEST_CORPUS_STORE_H
#define PLM_STAGES_INGEST_CORPUS_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus_format.h"

struct plm_corpus_store;

/* Makes an environment with the databases of a corpus of this format in an existing empty folder.
 */
plm_status plm_corpus_store_open(const char *directory, uint32_t format,
                                 struct plm_corpus_store **store, struct plm_error *error);
/* The indices of each (split, kind) must ascend. */
plm_status plm_corpus_store_put(struct plm_corpus_store *store, enum plm_split split,
                                enum plm_record_kind kind, uint64_t index, const void *bytes,
                                size_t size, struct plm_error *error);
plm_status plm_corpus_store_put_meta(struct plm_corpus_store *store, const void *bytes, size_t size,
                                     struct plm_error *error);
/* Commits, then hashes all records of one kind (`lengths` or `checks`) in order. */
plm_status plm_corpus_store_hash(struct plm_corpus_store *store, enum plm_record_kind kind,
                                 struct plm_hash *hash, struct plm_error *error);
/* After plm_corpus_store_hash: writes a compacted copy to path and fsyncs it. hash receives the
 * hash of the bytes as they were written to the file. A stop signal ends it. */
plm_status plm_corpus_store_compact(struct plm_corpus_store *store, const char *path,
                                    struct plm_hash *hash, struct plm_error *error);
void plm_corpus_store_close(struct plm_corpus_store *store); /* NULL is fine */

#endif
