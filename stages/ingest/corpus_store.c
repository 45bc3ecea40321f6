/* Writing to LMDB. */
#include "stages/ingest/corpus_store.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/process/thread.h"
#include "common/run/stop.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/ingest/lmdb_error.h"

/* Bounded, because a transaction keeps its dirty pages in memory until it commits. */
static const size_t transaction_bytes = 32 << 20;
static const size_t map_slack_bytes = 16 << 20;
static const size_t map_start_bytes = 256 << 20;
enum { PIPE_BYTES = 1 << 20 };

struct plm_corpus_store {
  char path[PLM_PATH_SIZE];
  MDB_env *environment;
  MDB_txn *transaction; /* NULL between transactions */
  MDB_dbi databases[PLM_SPLIT_COUNT][PLM_RECORD_KINDS], meta;
  size_t map_bytes, pending_bytes, limit_bytes;
};

static plm_status store_error(const struct plm_corpus_store *store, int code, const char *what,
                              struct plm_error *error)
{
  return plm_lmdb_write_error(store->path, store->limit_bytes, code, what, error);
}

static plm_status corpus_store_commit(struct plm_corpus_store *store, struct plm_error *error)
{
  if (store->transaction == NULL) return PLM_OK;
  const int code = mdb_txn_commit(store->transaction);
  store->transaction = NULL;
  return code == 0 ? PLM_OK : store_error(store, code, "write", error);
}

/* Makes sure that the transaction has room for a record of size bytes. The map can only grow
 * between transactions. */
static plm_status corpus_store_begin(struct plm_corpus_store *store, size_t size,
                                     struct plm_error *error)
{
  const size_t needed = size + size / 64 + (64 << 10); /* with page headers and the tree */
  if (store->transaction != NULL && store->pending_bytes + needed > store->limit_bytes)
    PLM_TRY(corpus_store_commit(store, error));
  if (store->transaction == NULL) {
    MDB_envinfo information;
    mdb_env_info(store->environment, &information);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = (information.me_last_pgno + 1) * page;
    store->limit_bytes = needed > transaction_bytes ? needed : transaction_bytes;
    store->pending_bytes = 0;
    int code = 0;
    if (used + 2 * store->limit_bytes + map_slack_bytes > store->map_bytes) {
      store->map_bytes = 2 * (used + store->limit_bytes + map_slack_bytes);
      code = mdb_env_set_mapsize(store->environment, store->map_bytes);
    }
    if (code == 0) code = mdb_txn_begin(store->environment, NULL, 0, &store->transaction);
    if (code != 0) return store_error(store, code, "write", error);
  }
  store->pending_bytes += needed;
  return PLM_OK;
}

static int open_databases(struct plm_corpus_store *store, uint32_t format)
{
  int code = mdb_txn_begin(store->environment, NULL, 0, &store->transaction);
  if (code == 0) code = mdb_dbi_open(store->transaction, PLM_CORPUS_META, MDB_CREATE, &store->meta);
  for (int s = 0; code == 0 && s < PLM_SPLIT_COUNT; s++) {
    for (int kind = 0; code == 0 && kind < plm_corpus_record_kinds(format); kind++) {
      char name[PLM_DATABASE_NAME_SIZE];
      plm_corpus_database_name((enum plm_split)s, (enum plm_record_kind)kind, name);
      code = mdb_dbi_open(store->transaction, name, MDB_CREATE, &store->databases[s][kind]);
    }
  }
  return code;
}

plm_status plm_corpus_store_open(const char *directory, uint32_t format,
                                 struct plm_corpus_store **store, struct plm_error *error)
{
  *store = NULL;
  struct plm_corpus_store *opened = plm_alloc_zeroed(1, sizeof *opened);
  snprintf(opened->path, sizeof opened->path, "%s", directory);
  opened->map_bytes = map_start_bytes;
  int code = mdb_env_create(&opened->environment);
  if (code == 0) code = mdb_env_set_maxdbs(opened->environment, PLM_CORPUS_DATABASES);
  if (code == 0) code = mdb_env_set_mapsize(opened->environment, opened->map_bytes);
  /* no locks and no fsync: nobody else opens it, and it is of no use until it is compacted */
  if (code == 0)
    code = mdb_env_open(opened->environment, directory, MDB_NOLOCK | MDB_NOSYNC | MDB_NOMETASYNC,
                        0666);
  if (code == 0) code = open_databases(opened, format);
  plm_status status =
      code == 0 ? corpus_store_commit(opened, error) : store_error(opened, code, "make", error);
  if (status != PLM_OK)
    plm_corpus_store_close(opened);
  else
    *store = opened;
  return status;
}

plm_status plm_corpus_store_put(struct plm_corpus_store *store, enum plm_split split,
                                enum plm_record_kind kind, uint64_t index, const void *bytes,
                                size_t size, struct plm_error *error)
{
  uint8_t key_bytes[8];
  plm_corpus_key(index, key_bytes);
  MDB_val key = {sizeof key_bytes, key_bytes}, value = {size, (void *)bytes};
  PLM_TRY(corpus_store_begin(store, size, error));
  const int code =
      mdb_put(store->transaction, store->databases[split][kind], &key, &value, MDB_APPEND);
  return code == 0 ? PLM_OK : store_error(store, code, "write", error);
}

plm_status plm_corpus_store_put_meta(struct plm_corpus_store *store, const void *bytes, size_t size,
                                     struct plm_error *error)
{
  MDB_val key = {sizeof PLM_CORPUS_META_KEY - 1, PLM_CORPUS_META_KEY};
  MDB_val value = {size, (void *)bytes};
  PLM_TRY(corpus_store_begin(store, size, error));
  const int code = mdb_put(store->transaction, store->meta, &key, &value, 0);
  return code == 0 ? PLM_OK : store_error(store, code, "write", error);
}

static int hash_database(MDB_txn *transaction, MDB_dbi database, struct plm_hasher *hasher)
{
  MDB_cursor *cursor;
  MDB_val key, value;
  int code = mdb_cursor_open(transaction, database, &cursor);
  if (code != 0) return code;
  while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0)
    plm_hasher_update(hasher, value.mv_data, value.mv_size);
  mdb_cursor_close(cursor);
  return code == MDB_NOTFOUND ? 0 : code;
}

plm_status plm_corpus_store_hash(struct plm_corpus_store *store, enum plm_record_kind kind,
                                 struct plm_hash *hash, struct plm_error *error)
{
  PLM_TRY(corpus_store_commit(store, error));
  struct plm_hasher *hasher = plm_hasher_open();
  MDB_txn *transaction;
  int code = mdb_txn_begin(store->environment, NULL, MDB_RDONLY, &transaction);
  if (code == 0) {
    for (int s = 0; code == 0 && s < PLM_SPLIT_COUNT; s++)
      code = hash_database(transaction, store->databases[s][kind], hasher);
    mdb_txn_abort(transaction);
  }
  *hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  return code == 0 ? PLM_OK : store_error(store, code, "read", error);
}

struct compaction {
  struct plm_corpus_store *store;
  int pipe_in, code;
};

/* LMDB writes its compacted copy to the pipe. Closing the pipe tells the other end. */
static void *copy_into_pipe(void *argument)
{
  struct compaction *compaction = argument;
  compaction->code =
      mdb_env_copyfd2(compaction->store->environment, compaction->pipe_in, MDB_CP_COMPACT);
  close(compaction->pipe_in);
  return NULL;
}

/* Copies from the pipe to the file and the hash until LMDB closes its end or a signal stops it. */
static plm_status drain_pipe(int pipe_out, int file, const char *path, struct plm_hasher *hasher,
                             struct plm_error *error)
{
  plm_status status = PLM_OK;
  char *buffer = malloc(PIPE_BYTES);
  if (buffer == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  while (status == PLM_OK) {
    const ssize_t got = read(pipe_out, buffer, PIPE_BYTES);
    if (got == 0) break;
    if (got > 0) {
      plm_hasher_update(hasher, buffer, (size_t)got);
      status = plm_file_write_all(file, buffer, (size_t)got, path, error);
    } else if (errno != EINTR) {
      status = plm_error_errno(error, "cannot read a pipe");
    }
    if (status == PLM_OK) status = plm_stop_check("", error);
  }
  free(buffer);
  return status;
}

/* Copies through a pipe, because a copy straight to the file could not be stopped. */
static plm_status copy_compacted(struct plm_corpus_store *store, int file, const char *path,
                                 struct plm_hasher *hasher, struct plm_error *error)
{
  int ends[2];
  pthread_t thread;
  if (pipe2(ends, O_CLOEXEC) != 0) return plm_error_errno(error, "cannot make a pipe");
  (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* for fewer reads; a smaller pipe also works */
  struct compaction compaction = {.store = store, .pipe_in = ends[1]};
  plm_status status = plm_thread_start(&thread, "compact", copy_into_pipe, &compaction, error);
  if (status != PLM_OK) {
    close(ends[0]);
    close(ends[1]);
    return status;
  }
  status = drain_pipe(ends[0], file, path, hasher, error);
  close(ends[0]); /* if this is early, LMDB's write fails with EPIPE */
  pthread_join(thread, NULL);
  if (status != PLM_OK) return status;
  return compaction.code == 0 ? PLM_OK : store_error(store, compaction.code, "compact", error);
}

plm_status plm_corpus_store_compact(struct plm_corpus_store *store, const char *path,
                                    struct plm_hash *hash, struct plm_error *error)
{
  PLM_ASSERT(store->transaction == NULL); /* plm_corpus_store_hash has committed it */
  const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return plm_error_errno(error, "cannot create %s", path);
  struct plm_hasher *hasher = plm_hasher_open();
  plm_status status = copy_compacted(store, file, path, hasher, error);
  if (status == PLM_OK) *hash = plm_hasher_digest(hasher);
  plm_hasher_close(hasher);
  if (status == PLM_OK && fsync(file) != 0)
    status = plm_error_errno(error, "cannot fsync %s", path);
  if (close(file) != 0 && status == PLM_OK)
    status = plm_error_errno(error, "cannot close %s", path);
  if (status == PLM_NO_SPACE)
    plm_error_hint(error, "while it writes, ingest needs twice the size of the finished corpus");
  return status;
}

void plm_corpus_store_close(struct plm_corpus_store *store)
{
  if (store == NULL) return;
  if (store->transaction != NULL) mdb_txn_abort(store->transaction);
  if (store->environment != NULL) mdb_env_close(store->environment);
  free(store);
}
