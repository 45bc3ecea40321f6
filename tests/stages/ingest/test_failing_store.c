/* Calls of LMDB and zstd that fail, one after another: what they store, read or compress is then
 * missing, and each of them has to be noticed. */
#include <lmdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "common/base/files/file.h"
#include "stages/ingest/corpus_store.h"
#include "stages/ingest/corpus_writer.h"
#include "stages/ingest/temporary_index.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"
#include "tests/support/harness/true_dlsym.h"

enum { CODE = MDB_PANIC };

static atomic_long left = -1; /* calls until one fails; -1: none does */

static bool puts_succeed; /* and are no calls that are counted */

static bool fails(void)
{
  return left >= 0 && left-- == 0;
}

/* These take the place of LMDB's functions in this program. */
#define REPLACED(name, parameters, arguments)   \
  int name parameters                           \
  {                                             \
    int(*truly) parameters;                     \
    void *found = true_dlsym(RTLD_NEXT, #name); \
    memcpy(&truly, &found, sizeof truly);       \
    return fails() ? CODE : truly arguments;    \
  }
REPLACED(mdb_env_create, (MDB_env * *environment), (environment))
REPLACED(mdb_env_set_maxdbs, (MDB_env * environment, MDB_dbi count), (environment, count))
REPLACED(mdb_env_set_mapsize, (MDB_env * environment, size_t size), (environment, size))
REPLACED(mdb_env_open, (MDB_env * environment, const char *path, unsigned flags, mdb_mode_t mode),
         (environment, path, flags, mode))
REPLACED(mdb_env_copyfd2, (MDB_env * environment, mdb_filehandle_t file, unsigned flags),
         (environment, file, flags))
REPLACED(mdb_txn_begin, (MDB_env * environment, MDB_txn *parent, unsigned flags, MDB_txn **made),
         (environment, parent, flags, made))
REPLACED(mdb_dbi_open, (MDB_txn * transaction, const char *name, unsigned flags, MDB_dbi *made),
         (transaction, name, flags, made))
REPLACED(mdb_get, (MDB_txn * transaction, MDB_dbi table, MDB_val *key, MDB_val *value),
         (transaction, table, key, value))
REPLACED(mdb_cursor_open, (MDB_txn * transaction, MDB_dbi table, MDB_cursor **made),
         (transaction, table, made))
REPLACED(mdb_cursor_get, (MDB_cursor * cursor, MDB_val *key, MDB_val *value, MDB_cursor_op what),
         (cursor, key, value, what))

int mdb_put(MDB_txn *transaction, MDB_dbi table, MDB_val *key, MDB_val *value, unsigned flags)
{
  int (*truly)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *, unsigned);
  void *found = true_dlsym(RTLD_NEXT, "mdb_put");
  memcpy(&truly, &found, sizeof truly);
  return !puts_succeed && fails() ? CODE : truly(transaction, table, key, value, flags);
}

/* It releases the transaction even if it fails. */
int mdb_txn_commit(MDB_txn *transaction)
{
  int (*truly)(MDB_txn *);
  void *found = true_dlsym(RTLD_NEXT, "mdb_txn_commit");
  memcpy(&truly, &found, sizeof truly);
  if (!fails()) return truly(transaction);
  mdb_txn_abort(transaction);
  return CODE;
}

size_t ZSTD_compress2(ZSTD_CCtx *context, void *to, size_t room, const void *from, size_t size)
{
  size_t (*truly)(ZSTD_CCtx *, void *, size_t, const void *, size_t);
  void *found = true_dlsym(RTLD_NEXT, "ZSTD_compress2");
  memcpy(&truly, &found, sizeof truly);
  return fails() ? (size_t)-1 : truly(context, to, room, from, size);
}

/* Whether an error is that of a call, with its place, or says what LMDB does not give to the reader
 * of a corpus, perhaps only with its record. */
static bool is_expected(const struct plm_error *error, const char *folder)
{
  if (strstr(error->what, mdb_strerror(CODE)) != NULL)
    return strstr(error->what, folder) != NULL || strncmp(error->what, "record ", 7) == 0;
  return strstr(error->what, "zstd: ") != NULL ||
         strstr(error->what, "do not belong together") != NULL;
}

typedef plm_status failing_work(const char *folder, struct plm_error *error);

/* Repeats the work in an empty folder: first its first call fails, then the second one. There are
 * more than `least`, and the work can do without `spared` of them. */
static void try_all(failing_work *work, long least, long spared)
{
  char folder[PLM_PATH_SIZE];
  long calls = 0;
  for (bool more = true; more; calls++) {
    struct plm_error error = {0};
    scratch_run(folder);
    left = calls;
    const plm_status status = work(folder, &error);
    more = left < 0;
    left = -1;
    if (more && status == PLM_OK)
      spared--;
    else if (more && !is_expected(&error, folder))
      fail_msg("call %ld: status %d, \"%s\"", calls, (int)status, error.what);
    if (!more && status != PLM_OK) fail_msg("%s", error.what);
    assert_int_equal(plm_path_remove(folder, NULL), PLM_OK);
  }
  assert_true(calls > least);
  assert_int_equal(spared, 0);
}

static plm_status count_record(void *context, const void *key, const void *value,
                               struct plm_error *error)
{
  (void)key, (void)value, (void)error;
  ++*(int *)context;
  return PLM_OK;
}

static plm_status use_index(struct plm_temporary_index *index, struct plm_error *error)
{
  int value = 7, walked = 0;
  bool found;
  PLM_TRY(plm_temporary_index_put(index, 0, "a", 1, &value, sizeof value, error));
  PLM_TRY(plm_temporary_index_put(index, 1, "b", 1, &value, sizeof value, error));
  PLM_TRY(plm_temporary_index_get(index, 0, "a", 1, &value, sizeof value, &found, error));
  assert_true(found);
  PLM_TRY(plm_temporary_index_get(index, 0, "b", 1, &value, sizeof value, &found, error));
  assert_false(found);
  PLM_TRY(plm_temporary_index_walk(index, 0, count_record, &walked, error));
  assert_int_equal(walked, 1);
  return plm_temporary_index_put(index, 0, "c", 1, &value, sizeof value, error);
}

/* So many that the index commits them on its way. */
static plm_status put_many(struct plm_temporary_index *index, struct plm_error *error)
{
  enum { MANY = 20000 };
  plm_status status = PLM_OK;
  puts_succeed = true;
  for (int value = 0; value < MANY && status == PLM_OK; value++)
    status = plm_temporary_index_put(index, 0, "d", 1, &value, sizeof value, error);
  puts_succeed = false;
  return status;
}

static plm_status make_index(const char *folder, struct plm_error *error)
{
  struct plm_temporary_index *index;
  PLM_TRY(plm_temporary_index_open(folder, 2, &index, error));
  plm_status status = use_index(index, error);
  if (status == PLM_OK) status = put_many(index, error);
  plm_temporary_index_close(index);
  return status;
}

static plm_status make_corpus(const char *folder, struct plm_error *error)
{
  enum { DOCUMENTS = PLM_GROUP_DOCUMENTS + 1 };
  char path[PLM_PATH_SIZE];
  struct plm_corpus_writer *writer;
  const struct plm_corpus_writer_options options = {.directory = path, .threads = 1};
  const struct plm_ingested_file source = {.name = "made", .bytes = 1, .documents = DOCUMENTS};
  PLM_TRY(plm_path_join(path, folder, "corpus", error));
  PLM_TRY(plm_corpus_writer_open(&options, &writer, error));
  plm_status status = PLM_OK;
  for (int i = 0; i < DOCUMENTS && status == PLM_OK; i++)
    status = plm_corpus_writer_add(writer, PLM_SPLIT_TRAIN, "x", 1, (const uint8_t *)"LAGVSERT", 8,
                                   error);
  if (status == PLM_OK)
    status = plm_corpus_writer_finish(writer, &source, 1, NULL, NULL, NULL, error);
  plm_corpus_writer_close(writer);
  return status;
}

static void an_index_fails(void **state)
{
  (void)state;
  try_all(make_index, 10, 0);
}

static void a_corpus_fails(void **state)
{
  (void)state;
  try_all(make_corpus, 20, 3); /* the corpus that is verified reads ahead */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_index_fails),
      cmocka_unit_test(a_corpus_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
