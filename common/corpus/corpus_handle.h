/* The inside of struct plm_corpus, private to common/corpus. */
#ifndef PLM_COMMON_CORPUS_CORPUS_HANDLE_H
#define PLM_COMMON_CORPUS_CORPUS_HANDLE_H

#include <lmdb.h>
#include <pthread.h>

#include "common/base/files/file.h"
#include "common/corpus/corpus_format.h"

struct plm_corpus {
  char directory[PLM_PATH_SIZE];
  char data_path[PLM_PATH_SIZE];
  struct plm_corpus_description description;
  MDB_env *environment;
  MDB_dbi databases[PLM_SPLIT_COUNT][PLM_RECORD_KINDS], meta;
  struct plm_group_check *checks[PLM_SPLIT_COUNT];
  /* Over the roots of the groups, and over the groups of sizes of clusters; NULL in old formats,
   * and without documents or clusters. */
  struct plm_proof_tree *groups[PLM_SPLIT_COUNT], *cluster_groups[PLM_SPLIT_COUNT];
  struct label_frames *label_frames; /* NULL: cursors do not share them */
  pthread_mutex_t prefetch_lock;
  MDB_txn *prefetch_transaction;
  struct plm_advance *opening; /* of plm_corpus_options, until it is open */
  int cache_lock;              /* on the copy in a cache, which stays there meanwhile; -1: none */
};

/* Reports an error code of LMDB: "WHAT PATH: reason". */
plm_status plm_corpus_lmdb_error(int code, const char *path, const char *what,
                                 struct plm_error *error);

/* The record under a key. The call, and every use of the value, must be between
 * plm_corpus_guard_enter and _leave. PLM_CORRUPT: it is missing. */
plm_status plm_corpus_record(const struct plm_corpus *corpus, MDB_txn *transaction,
                             enum plm_split split, enum plm_record_kind kind, uint64_t index,
                             MDB_val *value, struct plm_error *error);

struct plm_corpus *plm_corpus_cursor_corpus(const struct plm_corpus_cursor *cursor);

/* Asks the kernel to read a record ahead, whose value was found. The environment was opened without
 * readahead. */
void plm_corpus_will_need(const MDB_val *value);
/* The same for records [index, index + count) of a table or of groups, of those that exist. */
void plm_corpus_prefetch_records(struct plm_corpus *corpus, enum plm_split split,
                                 enum plm_record_kind kind, uint64_t index, uint64_t count);

/* Reads and checks all tables that planning and reading need; corpus_tables.c. */
plm_status plm_corpus_load_tables(struct plm_corpus *corpus, struct plm_error *error);

/* Fills error with PLM_CORRUPT and the record's name. */
plm_status plm_corpus_record_error(const struct plm_corpus *corpus, enum plm_split split,
                                   enum plm_record_kind kind, uint64_t index, const char *what,
                                   struct plm_error *error);

/* The same for a table of which all records together have a hash in corpus.json. */
plm_status plm_corpus_table_error(const struct plm_corpus *corpus, const char *table,
                                  struct plm_error *error);

/* Finds or makes the copy of directory's corpus in the cache. local receives its path; it stays
 * there until the caller closes *lock. */
plm_status plm_corpus_copy(const char *directory, const struct plm_corpus_options *options,
                           char local[PLM_PATH_SIZE], int *lock, struct plm_error *error);

#endif
