/* Records of an open corpus, and messages about those that are wrong. */
#include "common/corpus/corpus_handle.h"

#include <errno.h>

plm_status plm_corpus_lmdb_error(int code, const char *path, const char *what,
                                 struct plm_error *error)
{
  if (code == ENOMEM)
    return plm_error_set(error, PLM_NO_MEMORY, "%s %s: out of memory", what, path);
  if (code == ENOSPC || code == EDQUOT)
    return plm_error_set(error, PLM_NO_SPACE, "%s %s: no space left on the device", what, path);
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
