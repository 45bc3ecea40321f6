/* A lock whose files cannot be opened, written or read, at one call after another: the error is
 * said, and nothing stays locked. */
#include <stdio.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/failing_disk.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];

static plm_status use_lock(struct plm_lock *lock, const char *name, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  struct plm_lock_holder holder;
  PLM_TRY(plm_lock_check(lock, error));
  assert_true(snprintf(path, sizeof path, "%s/%s.lock", run, name) < (int)sizeof path);
  assert_int_equal(unlink(path), 0);
  PLM_TRY(plm_lock_check(lock, error)); /* makes it again */
  PLM_TRY(plm_lock_holder(run, name, &holder, error));
  assert_int_equal(holder.pid, getpid());
  return PLM_OK;
}

static plm_status hold(void *name, struct plm_error *error)
{
  struct plm_lock *lock;
  struct plm_error again = {0};
  plm_status status = plm_lock_acquire(run, name, &lock, error);
  if (status == PLM_OK) {
    status = use_lock(lock, name, error);
    plm_lock_release(lock);
  }
  const long at = failing_disk_pause();
  if (plm_lock_acquire(run, name, &lock, &again) != PLM_OK)
    fail_msg("after \"%s\": %s", error->what, again.what);
  plm_lock_release(lock);
  failing_disk_resume(at);
  return status;
}

static void each_failure_is_said(void **state)
{
  (void)state;
  plm_log_init("t", PLM_LOG_ERROR);
  scratch_run(run);
  failing_disk_try(hold, (void *)"trainer", NULL);
  failing_disk_try(hold, (void *)"supervisor", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
