/* common/run: locks, endpoints, DONE, readiness, and stop signals. */
#include "common/run/done.h"
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/run/run.h"
#include "common/run/stop.h"
#include "tests/support/harness/scratch.h"

static void a_lock_excludes_and_names_its_holder(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_lock *first, *second;
  struct plm_lock_holder holder;
  const char *run = scratch_directory();
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_NOT_FOUND);
  assert_int_equal(plm_lock_acquire(run, "trainer", &first, &error), PLM_OK);
  assert_int_equal(plm_lock_acquire(run, "trainer", &second, &error), PLM_BUSY);
  assert_non_null(strstr(error.what, "process"));
  assert_int_equal(plm_lock_holder(run, "trainer", &holder, &error), PLM_OK);
  assert_int_equal(holder.pid, getpid());
  assert_int_equal(plm_lock_check(first, &error), PLM_OK);
  /* The file names another incarnation, as after the lock was taken over. */
  assert_int_equal(plm_file_write(scratch_path("trainer.lock"),
                                  "{\"host\":\"x\",\"pid\":1,\"incarnation\":\"01\"}", 40, 0644,
                                  &error),
                   PLM_OK);
  assert_int_equal(plm_lock_check(first, &error), PLM_BUSY);
  plm_lock_release(first);
  assert_int_equal(plm_lock_acquire(run, "trainer", &second, &error), PLM_OK);
  plm_lock_release(second);
}

static pid_t in_child(const char *name, plm_status wanted)
{
  const pid_t child = fork();
  if (child == 0) {
    struct plm_error error = {0};
    struct plm_lock *lock;
    _exit(plm_lock_acquire(scratch_directory(), name, &lock, &error) == wanted ? 0 : 1);
  }
  return child;
}

static bool holds(const char *name, plm_status wanted)
{
  int status;
  assert_true(waitpid(in_child(name, wanted), &status, 0) > 0);
  return status == 0;
}

/* Whoever removes NAME.lock does not let a second writer in. */
static void a_removed_lock_is_made_anew(void **state)
{
  (void)state;
  static const char *const names[] = {"trainer", "evaluator"};
  for (int i = 0; i < 2; i++) {
    struct plm_error error = {0};
    struct plm_lock *lock;
    struct plm_lock_holder holder;
    char file[32], metrics[32];
    snprintf(file, sizeof file, "%s.lock", names[i]);
    snprintf(metrics, sizeof metrics, "%s.jsonl", names[i]);
    assert_int_equal(plm_lock_acquire(scratch_directory(), names[i], &lock, &error), PLM_OK);
    assert_int_equal(unlink(scratch_path(file)), 0);
    assert_true(holds(names[i], PLM_BUSY)); /* it leaves a new lock without a holder */
    assert_int_equal(plm_lock_watch(lock, &error), PLM_OK);
    assert_int_equal(plm_lock_holder(scratch_directory(), names[i], &holder, &error), PLM_OK);
    assert_int_equal(holder.pid, getpid());
    assert_int_equal(unlink(scratch_path(file)), 0);
    assert_int_equal(plm_lock_check(lock, &error), PLM_OK);
    assert_true(holds(names[i], PLM_BUSY));
    /* Metrics that were removed are noticed as well. */
    assert_int_equal(unlink(scratch_path(metrics)), 0);
    assert_int_equal(plm_lock_watch(lock, &error), PLM_BUSY);
    assert_non_null(strstr(error.where, metrics));
    assert_int_equal(unlink(scratch_path(file)), 0);
    assert_true(holds(names[i], PLM_OK));
    assert_int_equal(plm_lock_check(lock, &error), PLM_BUSY);
    plm_lock_release(lock);
  }
}

/* A second supervisor finds the run folder locked, and the first one creates its lock again. */
static void a_removed_lock_admits_no_second_supervisor(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_lock *lock;
  struct plm_lock_holder holder;
  assert_int_equal(plm_lock_acquire(scratch_directory(), "supervisor", &lock, &error), PLM_OK);
  assert_int_equal(unlink(scratch_path("supervisor.lock")), 0);
  assert_true(holds("supervisor", PLM_BUSY)); /* it leaves a new lock without a holder */
  assert_true(holds("trainer", PLM_OK));
  assert_int_equal(plm_endpoint_write(scratch_directory(), "feed", "tcp://a:1", &error), PLM_OK);
  assert_int_equal(plm_lock_watch(lock, &error), PLM_OK);
  assert_int_equal(plm_lock_holder(scratch_directory(), "supervisor", &holder, &error), PLM_OK);
  assert_int_equal(holder.pid, getpid());
  plm_lock_release(lock);
  assert_true(holds("supervisor", PLM_OK));
}

static void a_lock_dies_with_its_process(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_lock *lock;
  assert_true(holds("evaluator", PLM_OK));
  assert_int_equal(plm_lock_acquire(scratch_directory(), "evaluator", &lock, &error), PLM_OK);
  plm_lock_release(lock);
}

static void endpoints_of_parallel_writers_are_all_kept(void **state)
{
  (void)state;
  enum { writers = 8 };
  struct plm_error error = {0};
  const char *run = scratch_directory();
  for (int i = 0; i < writers; i++) {
    if (fork() == 0) {
      char key[16], value[64];
      snprintf(key, sizeof key, "key%d", i);
      for (int n = 0; n <= 20; n++) {
        snprintf(value, sizeof value, "tcp://127.0.0.1:%d", 1000 * i + n);
        if (plm_endpoint_write(run, key, value, &error) != PLM_OK) _exit(1);
      }
      _exit(0);
    }
  }
  for (int i = 0; i < writers; i++) {
    int status;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
  }
  char value[512], key[16];
  for (int i = 0; i < writers; i++) {
    snprintf(key, sizeof key, "key%d", i);
    assert_int_equal(plm_endpoint_read(run, key, value, &error), PLM_OK);
    assert_int_equal(atoi(value + strlen("tcp://127.0.0.1:")), 1000 * i + 20);
  }
  struct stat information;
  assert_int_equal(stat(scratch_path(PLM_RUN_ENDPOINTS), &information), 0);
  assert_int_equal(information.st_mode & 0777, 0600);
  plm_endpoint_remove(run, "key3");
  assert_int_equal(plm_endpoint_read(run, "key3", value, &error), PLM_NOT_FOUND);
}

static void the_run_id_is_made_once(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_hash first, second;
  assert_int_equal(plm_run_id(scratch_directory(), &first, &error), PLM_OK);
  assert_int_equal(plm_run_id(scratch_directory(), &second, &error), PLM_OK);
  assert_true(plm_hash_equal(first, second));
}

static void done_reads_back(void **state)
{
  (void)state;
  struct plm_error error = {0};
  struct plm_done done;
  assert_int_equal(plm_done_read(scratch_directory(), &done, &error), PLM_NOT_FOUND);
  const struct plm_hash written = {0x0123456789abcdefu, 0xfedcba9876543210u};
  assert_int_equal(plm_done_write(scratch_directory(),
                                  &(struct plm_done){.step = 300, .identity = written}, &error),
                   PLM_OK);
  assert_int_equal(plm_done_read(scratch_directory(), &done, &error), PLM_OK);
  assert_int_equal(done.step, 300);
  assert_true(plm_hash_equal(done.identity, written));
}

static void readiness_is_one_newline(void **state)
{
  (void)state;
  int pipe_ends[2];
  char text[8];
  assert_int_equal(pipe(pipe_ends), 0);
  snprintf(text, sizeof text, "%d", pipe_ends[1]);
  setenv("PLM_READY_FD", text, 1);
  plm_ready();
  assert_null(getenv("PLM_READY_FD")); /* the descriptor may soon be another file's */
  plm_ready();                         /* calling it twice does no harm */
  assert_int_equal(read(pipe_ends[0], text, sizeof text), 1);
  assert_int_equal(text[0], '\n');
  assert_int_equal(read(pipe_ends[0], text, sizeof text), 0);
  close(pipe_ends[0]);
}

/* The handler runs in this process, so each signal has its own child. */
static void a_stop_signal_has_a_status_and_a_name(void **state)
{
  (void)state;
  static const struct {
    int number;
    plm_status status;
    const char *what;
  } cases[] = {{SIGINT, PLM_INTERRUPTED, "stopped by Ctrl-C; nothing was written"},
               {SIGTERM, PLM_TERMINATED, "stopped by SIGTERM; nothing was written"},
               {SIGUSR1, PLM_TERMINATED, "stopped by SIGUSR1; nothing was written"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
      struct plm_error error = {0};
      plm_stop_signals_install();
      if (plm_stop_check("", &error) != PLM_OK) _exit(2);
      raise(cases[i].number);
      if (plm_stop_check("; nothing was written", &error) != cases[i].status) _exit(3);
      _exit(strcmp(error.what, cases[i].what) == 0 ? 0 : 4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
}

/* Runs signals in a child one after the other; returns how it ended. */
static int end_of(const int *numbers, size_t count, const char *supervisor)
{
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    if (supervisor != NULL) setenv(PLM_SUPERVISED, supervisor, 1);
    plm_stop_signals_install();
    for (size_t i = 0; i < count; i++) raise(numbers[i]);
    _exit(plm_stop_requested);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

static void a_second_signal_kills_unless_the_first_was_sigusr1(void **state)
{
  (void)state;
  static const struct {
    int numbers[3];
    size_t count;
    int killed_by; /* 0: it lives, and numbers[0] is the request */
  } cases[] = {
      {{SIGTERM}, 1, 0},
      {{SIGTERM, SIGTERM}, 2, SIGTERM},
      {{SIGINT, SIGTERM}, 2, SIGTERM},
      {{SIGTERM, SIGINT}, 2, SIGINT},
      {{SIGUSR1, SIGTERM}, 2, 0},
      {{SIGUSR1, SIGUSR1, SIGTERM}, 3, 0},
      {{SIGTERM, SIGUSR1}, 2, 0},
      {{SIGUSR1, SIGTERM, SIGTERM}, 3, SIGTERM},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int status = end_of(cases[i].numbers, cases[i].count, NULL);
    if (cases[i].killed_by != 0) {
      assert_true(WIFSIGNALED(status));
      assert_int_equal(WTERMSIG(status), cases[i].killed_by);
    } else {
      assert_true(WIFEXITED(status));
      assert_int_equal(WEXITSTATUS(status), cases[i].numbers[0]);
    }
  }
}

static void a_stage_is_killed_by_its_supervisor_only(void **state)
{
  (void)state;
  static const int twice[] = {SIGTERM, SIGTERM};
  char mark[64];
  snprintf(mark, sizeof mark, "%d.trainer.0", (int)getpid());
  int status = end_of(twice, 2, mark);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), SIGTERM);
  status = end_of(twice, 2, "1.trainer.0"); /* another process is the parent: the supervisor died */
  assert_true(WIFSIGNALED(status));
}

/* A supervisor that died before its stage could handle signals has stopped it nevertheless. */
static void a_stage_without_its_supervisor_stops_at_once(void **state)
{
  (void)state;
  char mark[64];
  siginfo_t ended;
  const pid_t died = fork();
  if (died == 0) _exit(0);
  snprintf(mark, sizeof mark, "%d.trainer.0", (int)died);
  assert_int_equal(waitid(P_PID, (id_t)died, &ended, WEXITED | WNOWAIT), 0); /* still a zombie */
  assert_int_equal(WEXITSTATUS(end_of(NULL, 0, mark)), SIGTERM);
  assert_int_equal(waitpid(died, NULL, 0), died);
  assert_int_equal(WEXITSTATUS(end_of(NULL, 0, mark)), SIGTERM);
  snprintf(mark, sizeof mark, "%d.trainer.0", (int)getpid());
  assert_int_equal(WEXITSTATUS(end_of(NULL, 0, mark)), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lock_excludes_and_names_its_holder),
      cmocka_unit_test(a_removed_lock_is_made_anew),
      cmocka_unit_test(a_removed_lock_admits_no_second_supervisor),
      cmocka_unit_test(a_lock_dies_with_its_process),
      cmocka_unit_test(endpoints_of_parallel_writers_are_all_kept),
      cmocka_unit_test(the_run_id_is_made_once),
      cmocka_unit_test(done_reads_back),
      cmocka_unit_test(readiness_is_one_newline),
      cmocka_unit_test(a_stop_signal_has_a_status_and_a_name),
      cmocka_unit_test(a_second_signal_kills_unless_the_first_was_sigusr1),
      cmocka_unit_test(a_stage_is_killed_by_its_supervisor_only),
      cmocka_unit_test(a_stage_without_its_supervisor_stops_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
