/* The files of a run on a disk that fails. Its keys: test_run_keys_disk.c; locks: test_lock_disk.c.
 */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/done.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

/* A new run, in a folder that nothing has made. */
static const char *new_run(void)
{
  const long at = failing_disk_pause();
  const char *run = scratch_path("disk/run");
  plm_path_remove(scratch_path("disk"), NULL);
  failing_disk_resume(at);
  return run;
}

static plm_status write_and_read(void *context, struct plm_error *error)
{
  const char *run = new_run();
  const struct plm_run_corpus corpus = {.fingerprint = {1, 2}, .root = {3, 4}};
  const struct plm_done done = {.step = 7, .identity = {5, 6}};
  struct plm_run_corpus corpus_read;
  struct plm_done done_read;
  struct plm_hash id, same_id;
  char value[512], *peers = NULL;
  (void)context;
  PLM_TRY(plm_directory_make(run, error));
  PLM_TRY(plm_endpoint_write(run, "feed", "tcp://here", error));
  PLM_TRY(plm_endpoint_read(run, "feed", value, error));
  assert_string_equal(value, "tcp://here");
  PLM_TRY(plm_run_id(run, &id, error));
  PLM_TRY(plm_run_id(run, &same_id, error));
  assert_true(plm_hash_equal(id, same_id));
  PLM_TRY(plm_run_corpus_write(run, &corpus, error));
  PLM_TRY(plm_run_corpus_read(run, &corpus_read, error));
  assert_memory_equal(&corpus, &corpus_read, sizeof corpus);
  PLM_TRY(plm_peers_write(run, "trainer", "{}", error));
  PLM_TRY(plm_peers_read(run, "trainer", &peers, error));
  assert_string_equal(peers, "{}");
  free(peers);
  PLM_TRY(plm_run_failure_write(run, &(struct plm_run_failure){.exit_code = 3}, error));
  PLM_TRY(plm_done_write(run, &done, error));
  PLM_TRY(plm_done_read(run, &done_read, error));
  assert_int_equal(done_read.step, 7);
  return plm_run_check_moved(run, error);
}

static void files_are_written_and_read_or_it_is_said(void **state)
{
  (void)state;
  failing_disk_try(write_and_read, NULL, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_are_written_and_read_or_it_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
