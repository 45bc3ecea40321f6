/* For a test program whose disk fails (failing_disk.h): calls of LMDB fail too, each in its turn,
 * as they do when a page cannot be read or written. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FAILING_LMDB_H
#define PLM_TESTS_SUPPORT_HARNESS_FAILING_LMDB_H

#include <dlfcn.h>
#include <errno.h>
#include <lmdb.h>
#include <stdbool.h>
#include <unistd.h>

#include "common/base/status.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static void *failing_lmdb_find(const char *name)
{
  void *found = dlsym(RTLD_NEXT, name);
  PLM_ASSERT(found != NULL);
  return found;
}

/* Defines the function so that it fails with EIO, or calls LMDB's. */
#define FAILING_LMDB(name, parameters, arguments)                                      \
  int name parameters                                                                  \
  {                                                                                    \
    static int(*_Atomic libraries) parameters;                                         \
    if (libraries == NULL) libraries = failing_lmdb_find(#name);                       \
    return failing_disk_fails(#name, scratch_directory()) ? EIO : libraries arguments; \
  }

FAILING_LMDB(mdb_env_set_maxdbs, (MDB_env * env, MDB_dbi count), (env, count))
FAILING_LMDB(mdb_env_set_mapsize, (MDB_env * env, size_t size), (env, size))
FAILING_LMDB(mdb_env_open, (MDB_env * env, const char *path, unsigned flags, mdb_mode_t mode),
             (env, path, flags, mode))
FAILING_LMDB(mdb_env_copyfd2, (MDB_env * env, mdb_filehandle_t file, unsigned flags),
             (env, file, flags))
FAILING_LMDB(mdb_txn_begin, (MDB_env * env, MDB_txn *parent, unsigned flags, MDB_txn **txn),
             (env, parent, flags, txn))
FAILING_LMDB(mdb_dbi_open, (MDB_txn * txn, const char *name, unsigned flags, MDB_dbi *dbi),
             (txn, name, flags, dbi))
FAILING_LMDB(mdb_put, (MDB_txn * txn, MDB_dbi dbi, MDB_val *key, MDB_val *value, unsigned flags),
             (txn, dbi, key, value, flags))
FAILING_LMDB(mdb_cursor_open, (MDB_txn * txn, MDB_dbi dbi, MDB_cursor **cursor), (txn, dbi, cursor))
FAILING_LMDB(mdb_cursor_get, (MDB_cursor * cursor, MDB_val *key, MDB_val *value, MDB_cursor_op op),
             (cursor, key, value, op))

static bool failing_lmdb_reads; /* set by the test: mdb_get fails also in a corpus that is read */

/* In an environment that is only read, it fails only in the first thread: others come in any
 * order. */
int mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *value)
{
  static int (*_Atomic libraries)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *);
  unsigned flags = 0;
  if (libraries == NULL) libraries = failing_lmdb_find("mdb_get");
  mdb_env_get_flags(mdb_txn_env(txn), &flags);
  const bool counts = (flags & MDB_RDONLY) == 0 || (failing_lmdb_reads && gettid() == getpid());
  return counts && failing_disk_fails("mdb_get", scratch_directory())
             ? EIO
             : libraries(txn, dbi, key, value);
}

/* A transaction that cannot be committed is gone. */
int mdb_txn_commit(MDB_txn *txn)
{
  static int (*_Atomic libraries)(MDB_txn *);
  if (libraries == NULL) libraries = failing_lmdb_find("mdb_txn_commit");
  if (!failing_disk_fails("mdb_txn_commit", scratch_directory())) return libraries(txn);
  mdb_txn_abort(txn);
  return EIO;
}

#endif
