/* Locks on a file system that fails: an error is an error, and no sign that somebody else has the
 * run, or that nobody has it. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static int fails;       /* errno of each of the calls below for locks; 0: none fails */
static int fails_after; /* the calls that succeed before */

static int failing(void)
{
  if (fails == 0 || fails_after-- > 0) return 0;
  errno = fails;
  return -1;
}

/* These take the place of libc's functions in this program. */
int fcntl(int file, int command, ...)
{
  va_list arguments;
  va_start(arguments, command);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  if ((command == F_OFD_SETLK || command == F_OFD_GETLK) && failing() != 0) return -1;
  return (int)syscall(SYS_fcntl, file, command, argument);
}

int ftruncate(int file, off_t size)
{
  return failing() != 0 ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

int flock(int file, int operation)
{
  if (failing() != 0) return -1;
  return (int)syscall(SYS_flock, file, operation);
}

static char run[PLM_PATH_SIZE];

static int begin(void **state)
{
  (void)state;
  fails = fails_after = 0;
  scratch_run(run);
  return 0;
}

/* Acquires the lock, which has to fail. */
static void refused(const char *name, plm_status expected, const char *what)
{
  struct plm_lock *lock = NULL;
  struct plm_error error = {0};
  assert_int_equal(plm_lock_acquire(run, name, &lock, &error), expected);
  assert_null(lock);
  if (strstr(error.what, what) == NULL) fail_msg("%s", error.what);
}

static void a_lock_that_cannot_be_taken_is_an_error(void **state)
{
  static const char *const names[] = {"trainer", "evaluator", "supervisor"};
  (void)state;
  for (int i = 0; i < 3; i++)
    for (fails_after = 0; fails_after < 2;) {
      const int after = fails_after; /* then the second file's lock fails */
      fails = ENOLCK;
      refused(names[i], PLM_IO, "cannot lock ");
      fails = 0;
      fails_after = after + 1;
    }
}

/* These two say that somebody else has it. */
static void a_lock_that_is_taken_is_busy(void **state)
{
  static const int causes[] = {EAGAIN, EACCES};
  (void)state;
  for (int i = 0; i < 2; i++) {
    fails = causes[i];
    fails_after = 0;
    refused("trainer", PLM_BUSY, "another trainer has this run"); /* who that is, nobody wrote */
    fails_after = 1;
    refused("trainer", PLM_BUSY, "another trainer writes this file, although its trainer.lock was");
    fails_after = 1;
    refused("supervisor", PLM_BUSY,
            "another supervisor has this run, although its supervisor.lock");
  }
}

static void a_holder_that_cannot_be_asked_for_is_an_error(void **state)
{
  struct plm_lock *lock;
  struct plm_lock_holder holder;
  struct plm_error error = {0};
  (void)state;
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_NOT_FOUND);
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, &error), PLM_OK);
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_OK);
  assert_int_equal(holder.pid, getpid());
  fails = ENOLCK;
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_IO);
  assert_non_null(strstr(error.what, "cannot query the lock "));
  fails = 0;
  plm_lock_release(lock);
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_NOT_FOUND);
  assert_non_null(strstr(error.what, "nobody holds "));
}

/* The first two locks are taken, and then the file is to say by whom. */
static void a_holder_that_cannot_be_written_is_an_error(void **state)
{
  (void)state;
  struct plm_lock *lock;
  fails = EIO;
  fails_after = 2;
  refused("trainer", PLM_IO, "cannot truncate ");
  fails = 0;
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, NULL), PLM_OK); /* it was released */
  plm_lock_release(lock);
}

/* Another process has just made the file again: the next check will tell. */
static void a_new_file_that_is_locked_is_left_alone(void **state)
{
  (void)state;
  struct plm_lock *lock;
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, NULL), PLM_OK);
  assert_int_equal(plm_path_join(path, run, "trainer.lock", NULL), PLM_OK);
  assert_int_equal(unlink(path), 0);
  fails = EAGAIN;
  fails_after = 0;
  assert_int_equal(plm_lock_check(lock, NULL), PLM_OK);
  fails = 0;
  assert_string_equal(scratch_contents(path), "");
  assert_int_equal(plm_lock_check(lock, NULL), PLM_OK);
  assert_non_null(strstr(scratch_contents(path), "\"pid\":"));
  plm_lock_release(lock);
}

static void endpoints_that_cannot_be_locked_are_an_error(void **state)
{
  (void)state;
  struct plm_error error = {0};
  int lock;
  fails = ENOLCK;
  fails_after = 0;
  assert_int_equal(plm_endpoints_lock(run, &lock, &error), PLM_IO);
  assert_non_null(strstr(error.what, "/endpoints.lock: No locks available"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_lock_that_cannot_be_taken_is_an_error, begin),
      cmocka_unit_test_setup(a_lock_that_is_taken_is_busy, begin),
      cmocka_unit_test_setup(a_holder_that_cannot_be_asked_for_is_an_error, begin),
      cmocka_unit_test_setup(a_holder_that_cannot_be_written_is_an_error, begin),
      cmocka_unit_test_setup(a_new_file_that_is_locked_is_left_alone, begin),
      cmocka_unit_test_setup(endpoints_that_cannot_be_locked_are_an_error, begin),
  };
  plm_log_init("t", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
