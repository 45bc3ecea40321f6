/* See failing_lmdb.h. The functions take the place of LMDB's in this program. */
#include "tests/support/corpora/failing_lmdb.h"

#include <dlfcn.h>
#include <errno.h>
#include <lmdb.h>
#include <stdbool.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"

static _Thread_local long left = -1; /* calls that succeed before one fails; -1: all do */
static const char *failed = "";      /* the call that failed */

static bool fails(const char *call)
{
  if (left < 0 || left-- > 0) return false;
  failed = call;
  return true;
}

int mdb_env_create(MDB_env **environment)
{
  int (*real)(MDB_env **);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_env_create");
  return fails("mdb_env_create") ? EIO : real(environment);
}

int mdb_env_set_maxdbs(MDB_env *environment, MDB_dbi databases)
{
  int (*real)(MDB_env *, MDB_dbi);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_env_set_maxdbs");
  return fails("mdb_env_set_maxdbs") ? EIO : real(environment, databases);
}

int mdb_env_set_mapsize(MDB_env *environment, size_t size)
{
  int (*real)(MDB_env *, size_t);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_env_set_mapsize");
  return fails("mdb_env_set_mapsize") ? EIO : real(environment, size);
}

int mdb_env_open(MDB_env *environment, const char *path, unsigned flags, mdb_mode_t mode)
{
  int (*real)(MDB_env *, const char *, unsigned, mdb_mode_t);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_env_open");
  return fails("mdb_env_open") ? EIO : real(environment, path, flags, mode);
}

int mdb_txn_begin(MDB_env *environment, MDB_txn *parent, unsigned flags, MDB_txn **transaction)
{
  int (*real)(MDB_env *, MDB_txn *, unsigned, MDB_txn **);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_txn_begin");
  return fails("mdb_txn_begin") ? EIO : real(environment, parent, flags, transaction);
}

int mdb_txn_commit(MDB_txn *transaction)
{
  int (*real)(MDB_txn *);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_txn_commit");
  if (!fails("mdb_txn_commit")) return real(transaction);
  mdb_txn_abort(transaction);
  return EIO;
}

int mdb_dbi_open(MDB_txn *transaction, const char *name, unsigned flags, MDB_dbi *database)
{
  int (*real)(MDB_txn *, const char *, unsigned, MDB_dbi *);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_dbi_open");
  return fails("mdb_dbi_open") ? EIO : real(transaction, name, flags, database);
}

int mdb_dbi_flags(MDB_txn *transaction, MDB_dbi database, unsigned *flags)
{
  int (*real)(MDB_txn *, MDB_dbi, unsigned *);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_dbi_flags");
  return fails("mdb_dbi_flags") ? EIO : real(transaction, database, flags);
}

int mdb_get(MDB_txn *transaction, MDB_dbi database, MDB_val *key, MDB_val *value)
{
  int (*real)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *);
  *(void **)&real = dlsym(RTLD_NEXT, "mdb_get");
  return fails("mdb_get") ? EIO : real(transaction, database, key, value);
}

long failing_lmdb_pause(void)
{
  const long at = left;
  left = -1;
  return at;
}

void failing_lmdb_resume(long at)
{
  left = at;
}

void failing_lmdb_try(failing_lmdb_work *work, void *context, int others, int least)
{
  int other = 0;
  for (int at = 0;; at++) {
    struct plm_error error = {0};
    failed = "";
    left = at;
    const plm_status status = work(context, &error);
    if (failing_lmdb_pause() >= 0) {
      if (status != PLM_OK) fail_msg("status %d, \"%s\"", (int)status, error.what);
      if (other != others || at < least)
        fail_msg("%d calls failed, %d of them with another end", at, other);
      return;
    }
    const bool said = status != PLM_OK && strstr(error.what, strerror(EIO)) != NULL;
    if (!said && ++other > others)
      fail_msg("%d: %s: status %d, \"%s\"", at, failed, (int)status, error.what);
  }
}
