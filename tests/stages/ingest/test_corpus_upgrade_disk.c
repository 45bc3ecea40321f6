/* `corpus --upgrade` while calls to the disk or reads of the old corpus fail in turn: the corpus is
 * the old one or the new one, and the same command upgrades it. */
#include <dlfcn.h>
#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/corpus/corpus_description.h"
#include "stages/ingest/corpus_upgrade.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/must.h"
#include "tests/support/harness/scratch.h"

static char folder[PLM_PATH_SIZE], corpus[PLM_PATH_SIZE];
static long reads = -1; /* of the first thread, before one fails; -1: none fails */
static bool attempted;  /* one has failed */

/* Takes the place of LMDB's function in this program. */
int mdb_get(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *value)
{
  static int (*_Atomic libraries)(MDB_txn *, MDB_dbi, MDB_val *, MDB_val *);
  if (libraries == NULL) libraries = dlsym(RTLD_NEXT, "mdb_get");
  if (gettid() != getpid() || reads < 0 || reads-- > 0) return libraries(txn, dbi, key, value);
  attempted = true;
  return EIO;
}

/* The old corpora anew. */
static int setup(void **state)
{
  const char *root = getenv("PLM_ROOT");
  char command[3 * PLM_PATH_SIZE];
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  scratch_run(folder);
  must_work(plm_path_join(corpus, folder, "clusters.corpus", NULL), NULL);
  snprintf(command, sizeof command,
           "tar -C '%s' -xJf '%s/tests/data/old_formats.tar.xz' clusters.corpus", folder,
           root != NULL ? root : ".");
  return system(command);
}

/* Whether the corpus is whole and new. */
static bool is_upgraded(void)
{
  struct plm_corpus_description description;
  struct plm_error error = {0};
  must_work(plm_corpus_description_read_old(corpus, &description, &error), &error);
  const bool upgraded = plm_corpus_has_proof(&description.info);
  plm_corpus_description_deinit(&description);
  must_work(plm_corpus_verify(corpus, NULL, NULL, &error), &error);
  return upgraded;
}

static plm_status upgrade(void *context, struct plm_error *error)
{
  struct plm_corpus_info info;
  bool upgraded = false;
  (void)context;
  const plm_status status = plm_corpus_upgrade(corpus, &info, &upgraded, error);
  const long at = failing_disk_pause();
  reads = -1;
  /* Once the new one has its name, the folder cannot be synced, or the old one not be removed. */
  const bool late = failing_disk_failed(folder) || strncmp(error->what, "cannot remove", 13) == 0;
  const bool is_new = is_upgraded();
  assert_true(status == PLM_OK ? is_new && upgraded : !is_new || late);
  if (is_new) assert_int_equal(setup(NULL), 0);
  failing_disk_resume(at);
  return status;
}

static void each_failure_of_the_disk_is_an_error(void **state)
{
  (void)state;
  /* Leftovers of others, and a lock. */
  static const char *const unnoticed[] = {"opendir */run-*", "+readdir */run-*",
                                          "open *.tmp-*[0-9]", NULL};
  failing_disk_try(upgrade, NULL, unnoticed);
}

/* Of the reads that do not fail, each is only ahead of another. */
static void each_read_that_fails_is_an_error(void **state)
{
  long failures = 0, all = 0;
  (void)state;
  for (bool failed = true; failed; all++) {
    struct plm_error error = {0};
    reads = all;
    attempted = false;
    const plm_status status = upgrade(NULL, &error);
    failed = attempted;
    failures += status != PLM_OK;
    if (status == PLM_OK || strstr(error.what, "do not belong together") != NULL) continue;
    if (strstr(error.what, strerror(EIO)) == NULL) fail_msg("%ld: %s", all, error.what);
  }
  assert_true(failures >= 87);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(each_failure_of_the_disk_is_an_error, setup),
      cmocka_unit_test_setup(each_read_that_fails_is_an_error, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
