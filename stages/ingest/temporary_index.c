/* Bounded transactions in an LMDB environment that is deleted after use. */
#include "stages/ingest/temporary_index.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "stages/ingest/lmdb_error.h"

/* Until it commits, a transaction keeps the pages that it changes in memory. A put in a random
 * place changes one leaf; its branches are shared with other puts. */
enum { PUTS_IN_TRANSACTION = 16384, PAGES_OF_PUT = 2 };

struct plm_temporary_index {
  char directory[PLM_PATH_SIZE];
  MDB_env *environment;
  MDB_txn *transaction; /* NULL between transactions */
  MDB_dbi tables[PLM_INDEX_TABLES];
  size_t page_bytes, map_bytes, limit_bytes;
  unsigned puts; /* in the transaction */
};

static plm_status index_error(const struct plm_temporary_index *index, int code, const char *what,
                              struct plm_error *error)
{
  return plm_lmdb_write_error(index->directory, index->limit_bytes, code, what, error);
}

static plm_status temporary_index_commit(struct plm_temporary_index *index, struct plm_error *error)
{
  if (index->transaction == NULL) return PLM_OK;
  const int code = mdb_txn_commit(index->transaction);
  index->transaction = NULL;
  return code == 0 ? PLM_OK : index_error(index, code, "write", error);
}

/* Begins a transaction unless there is one with room for another put. The map can only grow between
 * transactions. */
static plm_status temporary_index_begin(struct plm_temporary_index *index, struct plm_error *error)
{
  if (index->puts == PUTS_IN_TRANSACTION) PLM_TRY(temporary_index_commit(index, error));
  if (index->transaction != NULL) return PLM_OK;
  MDB_envinfo information;
  int code = mdb_env_info(index->environment, &information);
  const size_t used = (information.me_last_pgno + 1) * index->page_bytes;
  if (used + 2 * index->limit_bytes > index->map_bytes) {
    index->map_bytes = 2 * (used + 2 * index->limit_bytes);
    code = mdb_env_set_mapsize(index->environment, index->map_bytes);
  }
  if (code == 0) code = mdb_txn_begin(index->environment, NULL, 0, &index->transaction);
  index->puts = 0;
  return code == 0 ? PLM_OK : index_error(index, code, "write", error);
}

static int open_tables(struct plm_temporary_index *index, int tables)
{
  int code = mdb_txn_begin(index->environment, NULL, 0, &index->transaction);
  for (int t = 0; code == 0 && t < tables; t++) {
    char name[16];
    snprintf(name, sizeof name, "%d", t);
    code = mdb_dbi_open(index->transaction, name, MDB_CREATE, &index->tables[t]);
  }
  return code;
}

plm_status plm_temporary_index_open(const char *directory, int tables,
                                    struct plm_temporary_index **index, struct plm_error *error)
{
  *index = NULL;
  PLM_ASSERT(tables <= PLM_INDEX_TABLES);
  struct plm_temporary_index *opened = plm_alloc_zeroed(1, sizeof *opened);
  snprintf(opened->directory, sizeof opened->directory, "%s", directory);
  opened->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  opened->limit_bytes = (size_t)PUTS_IN_TRANSACTION * PAGES_OF_PUT * opened->page_bytes;
  int code = mdb_env_create(&opened->environment);
  if (code == 0) code = mdb_env_set_maxdbs(opened->environment, PLM_INDEX_TABLES);
  if (code == 0)
    code = mdb_env_open(opened->environment, directory,
                        MDB_NOLOCK | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NORDAHEAD, 0600);
  if (code == 0) code = open_tables(opened, tables);
  plm_status status =
      code == 0 ? temporary_index_commit(opened, error) : index_error(opened, code, "make", error);
  if (status != PLM_OK)
    plm_temporary_index_close(opened);
  else
    *index = opened;
  return status;
}

void plm_temporary_index_close(struct plm_temporary_index *index)
{
  if (index == NULL) return;
  if (index->transaction != NULL) mdb_txn_abort(index->transaction);
  if (index->environment != NULL) mdb_env_close(index->environment);
  free(index);
}

plm_status plm_temporary_index_put(struct plm_temporary_index *index, int table, const void *key,
                                   size_t key_size, const void *value, size_t value_size,
                                   struct plm_error *error)
{
  PLM_ASSERT(key_size + value_size <= PLM_INDEX_RECORD_LIMIT);
  MDB_val k = {key_size, (void *)key}, v = {value_size, (void *)value};
  PLM_TRY(temporary_index_begin(index, error));
  index->puts++;
  const int code = mdb_put(index->transaction, index->tables[table], &k, &v, 0);
  return code == 0 ? PLM_OK : index_error(index, code, "write", error);
}

plm_status plm_temporary_index_get(struct plm_temporary_index *index, int table, const void *key,
                                   size_t key_size, void *value, size_t value_size, bool *found,
                                   struct plm_error *error)
{
  MDB_val k = {key_size, (void *)key}, v;
  PLM_TRY(temporary_index_begin(index, error));
  const int code = mdb_get(index->transaction, index->tables[table], &k, &v);
  *found = code == 0;
  if (code == MDB_NOTFOUND) return PLM_OK;
  if (code != 0) return index_error(index, code, "read", error);
  PLM_ASSERT(v.mv_size == value_size);
  memcpy(value, v.mv_data, value_size);
  return PLM_OK;
}

plm_status plm_temporary_index_walk(struct plm_temporary_index *index, int table,
                                    plm_status (*each)(void *context, const void *key,
                                                       const void *value, struct plm_error *error),
                                    void *context, struct plm_error *error)
{
  MDB_txn *transaction;
  MDB_cursor *cursor;
  MDB_val key, value;
  PLM_TRY(temporary_index_commit(index, error));
  int code = mdb_txn_begin(index->environment, NULL, MDB_RDONLY, &transaction);
  if (code != 0) return index_error(index, code, "read", error);
  code = mdb_cursor_open(transaction, index->tables[table], &cursor);
  if (code != 0) {
    mdb_txn_abort(transaction);
    return index_error(index, code, "read", error);
  }
  plm_status status = PLM_OK;
  while (status == PLM_OK && (code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
    status = each(context, key.mv_data, value.mv_data, error);
  mdb_cursor_close(cursor);
  mdb_txn_abort(transaction);
  if (status == PLM_OK && code != MDB_NOTFOUND) status = index_error(index, code, "read", error);
  return status;
}
