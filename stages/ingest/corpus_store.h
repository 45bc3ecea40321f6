/* The LMDB environment under construction: appends in key order, transactions of bounded size, a
 * map that grows as needed. */
#ifndef PLM_STAGES_INGEST_CORPUS_STORE_H
#define PLM_STAGES_INGEST_CORPUS_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/corpus/corpus_format.h"

struct plm_corpus_store;

/* An empty environment in an existing empty folder. */
plm_status plm_corpus_store_open(const char *directory, struct plm_corpus_store **store,
                                 struct plm_error *error);
/* Indices of one (split, kind) must ascend. */
plm_status plm_corpus_store_put(struct plm_corpus_store *store, enum plm_split split,
                                enum plm_record_kind kind, uint64_t index, const void *bytes,
                                size_t size, struct plm_error *error);
plm_status plm_corpus_store_put_meta(struct plm_corpus_store *store, const void *bytes, size_t size,
                                     struct plm_error *error);
/* Commits, then hashes all `lengths` or `checks` records in order. */
plm_status plm_corpus_store_hash(struct plm_corpus_store *store, enum plm_record_kind kind,
                                 struct plm_hash *hash, struct plm_error *error);
/* Commits and writes a compacted copy to path, fsynced; hash: of its bytes as they were handed to
 * the file. stop: as in plm_corpus_writer_finish. */
plm_status plm_corpus_store_compact(struct plm_corpus_store *store, const char *path,
                                    const volatile int *stop, struct plm_hash *hash,
                                    struct plm_error *error);
void plm_corpus_store_close(struct plm_corpus_store *store); /* NULL is fine */

#endif
