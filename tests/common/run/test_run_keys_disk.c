/* What a stage writes when it opens a run: if the disk fails, the error is said, and the next start
 * completes what is missing. */
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "common/wire/security.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/failing_entries.h"
#include "tests/support/harness/scratch.h"

static plm_status open_keys(const char *run, struct plm_error *error)
{
  char keys[PLM_PATH_SIZE];
  PLM_TRY(plm_run_keys(run, NULL, keys, error));
  struct plm_keypair pair;
  return plm_keys_server(keys, &pair, error);
}

/* Beside what a stage has left that was killed here. */
static plm_status make_keys(void *run, struct plm_error *error)
{
  struct plm_error again = {0};
  char left[PLM_PATH_SIZE];
  long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(run, NULL), PLM_OK);
  assert_int_equal(plm_path_join(left, run, ".tmp-keys", NULL), PLM_OK);
  assert_int_equal(plm_directory_make(left, NULL), PLM_OK);
  failing_disk_resume(at);
  const plm_status status = open_keys(run, error);
  at = failing_disk_pause();
  if (open_keys(run, &again) != PLM_OK) fail_msg("after \"%s\": %s", error->what, again.what);
  failing_disk_resume(at);
  return status;
}

static void keys_are_complete_or_missing(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE];
  /* a client can do with the server's key */
  static const char *const others[] = {"opendir */keys", "opendir */clients", "+readdir *",
                                       "stat */run.pub", NULL};
  scratch_run(run);
  failing_disk_try(make_keys, run, others);
}

/* Writes and reads each fact. What one failed to write keeps the value of before. */
static plm_status tell(void *run, struct plm_error *error)
{
  struct plm_hash id, again;
  struct plm_run_corpus corpus = {.fingerprint = {.low = 7}, .root = {.high = 8}}, read;
  char value[512];
  long at = failing_disk_pause();
  assert_int_equal(plm_path_remove(run, NULL), PLM_OK);
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_endpoint_write(run, "feed", "before", NULL), PLM_OK);
  failing_disk_resume(at);
  plm_status status = plm_endpoint_write(run, "feed", "tcp://127.0.0.1:7", error);
  at = failing_disk_pause();
  assert_int_equal(plm_endpoint_read(run, "feed", value, NULL), PLM_OK);
  if (status != PLM_OK && strcmp(value, "before") != 0)
    assert_true(strstr(error->what, "fsync") || strstr(error->what, "cannot open"));
  failing_disk_resume(at);
  PLM_TRY(status);
  PLM_TRY(plm_run_id(run, &id, error));
  PLM_TRY(plm_run_id(run, &again, error));
  assert_true(plm_hash_known(id) && plm_hash_equal(id, again));
  PLM_TRY(plm_endpoint_read(run, "feed", value, error));
  assert_string_equal(value, "tcp://127.0.0.1:7");
  PLM_TRY(plm_run_corpus_write(run, &corpus, error));
  PLM_TRY(plm_run_corpus_read(run, &read, error));
  assert_true(plm_hash_equal(read.fingerprint, corpus.fingerprint));
  assert_true(plm_hash_equal(read.root, corpus.root));
  return PLM_OK;
}

static void each_fact_is_told_or_an_error(void **state)
{
  (void)state;
  char run[PLM_PATH_SIZE];
  /* what was there before, which is then written again */
  static const char *const others[] = {"stat */CORPUS", NULL};
  scratch_run(run);
  failing_disk_try(tell, run, others);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_are_complete_or_missing),
      cmocka_unit_test(each_fact_is_told_or_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
