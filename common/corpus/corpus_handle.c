/* Records of an open corpus, and messages about those that are wrong. */
#include "common/corpus/corpus_handle.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/corpus/corpus_guard.h"

plm_status plm_corpus_lmdb_error(int code, const char *path, const char *what,
                                 struct plm_error *error)
{
  if (code == ENOMEM)
    return plm_error_set(error, PLM_NO_MEMORY, "%s %s: out of memory", what, path);
  const plm_status status = code > 0 ? PLM_IO : PLM_CORRUPT;
  return plm_error_set(error, status, "%s %s: %s", what, path, mdb_strerror(code));
}

plm_status plm_corpus_record_error(const struct plm_corpus *corpus, enum plm_split split,
                                   enum plm_record_kind kind, uint64_t index, const char *what,
                                   struct plm_error *error)
{
  char name[PLM_DATABASE_NAME_SIZE];
  plm_corpus_database_name(split, kind, name);
  plm_error_set(error, PLM_CORRUPT, "record %llu of %s %s", (unsigned long long)index, name, what);
  plm_error_hint(error, "copy the corpus again or ingest its sources again");
  return plm_error_where(error, "%s", corpus->data_path);
}

plm_status plm_corpus_table_error(const struct plm_corpus *corpus, const char *table,
                                  struct plm_error *error)
{
  plm_error_set(error, PLM_CORRUPT, "%s: `%s` is not what ingest wrote", corpus->data_path, table);
  return plm_error_hint(error, "copy the corpus again or ingest its sources again");
}

plm_status plm_corpus_record(const struct plm_corpus *corpus, MDB_txn *transaction,
                             enum plm_split split, enum plm_record_kind kind, uint64_t index,
                             MDB_val *value, struct plm_error *error)
{
  uint8_t bytes[8];
  plm_corpus_key(index, bytes);
  MDB_val key = {sizeof bytes, bytes};
  const int code = mdb_get(transaction, corpus->databases[split][kind], &key, value);
  if (code == 0) return PLM_OK;
  return plm_corpus_record_error(corpus, split, kind, index,
                                 code == MDB_NOTFOUND ? "is missing" : mdb_strerror(code), error);
}

void plm_corpus_will_need(const MDB_val *value)
{
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (uintptr_t)value->mv_data & ~(page - 1);
  const uintptr_t end = (uintptr_t)value->mv_data + value->mv_size;
  (void)madvise((void *)begin, end - begin, MADV_WILLNEED); /* if it fails, only time is lost */
}

void plm_corpus_prefetch_records(struct plm_corpus *corpus, enum plm_split split,
                                 enum plm_record_kind kind, uint64_t index, uint64_t count)
{
  pthread_mutex_lock(&corpus->prefetch_lock);
  plm_corpus_guard_enter(corpus->data_path);
  for (uint64_t i = 0; i < count; i++) {
    MDB_val value;
    if (plm_corpus_record(corpus, corpus->prefetch_transaction, split, kind, index + i, &value,
                          NULL) != PLM_OK)
      break; /* there is none, or reading it will report the error */
    plm_corpus_will_need(&value);
  }
  plm_corpus_guard_leave();
  pthread_mutex_unlock(&corpus->prefetch_lock);
}
