/* The trainer with several ranks under the supervisor: how it is started, when it is ready, when it
 * is asked again to stop, and when an mpirun that does not end is killed. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/cases/supervisor_case.h"
#include "tests/support/harness/scratch.h"

static int setup(void **state)
{
  struct plm_supervisor *supervisor = supervisor_case_open("trainer: {ranks: 2}\n");
  snprintf(supervisor->requests.socket_path, sizeof supervisor->requests.socket_path,
           "%s/plm-%d.sock", plm_temporary_folder(), (int)getpid());
  unsetenv("PLM_MPIRUN_GRACE_S");
  *state = supervisor;
  return 0;
}

static int teardown(void **state)
{
  supervisor_case_close(*state);
  return 0;
}

static struct supervised *add(struct plm_supervisor *supervisor, enum plm_stage_state state)
{
  struct supervised *stage = supervisor_case_add(supervisor, PLM_KIND_TRAINER, state);
  assert_ptr_equal(stage->gang, &supervisor->gang);
  gang_init(stage->gang); /* as after an earlier one */
  supervisor->gang.hung = false;
  supervisor->gang.ask_ms = supervisor->gang.first_gone_ms = 0;
  return stage;
}

/* A child that waits for a signal. */
static pid_t sleeper(void)
{
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  assert_true(pid > 0);
  return pid;
}

/* Waits for its end, and returns the number of the signal that ended it. */
static int signal_of(pid_t pid)
{
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  return WTERMSIG(status);
}

static void bind_endpoint(const struct plm_supervisor *supervisor, const char *key)
{
  assert_int_equal(
      plm_endpoint_write(supervisor->stages.config->run, key, "tcp://127.0.0.1:1", NULL), PLM_OK);
}

static bool is_bound(const struct plm_supervisor *supervisor, const char *key)
{
  char value[512];
  return plm_endpoint_read(supervisor->stages.config->run, key, value, NULL) == PLM_OK;
}

/* ---- the start ------------------------------------------------------------------------------- */

/* mpirun is a script that says how it was started, and ends with 7. */
static void mpirun_is_started_with_a_folder_and_a_log(void **state)
{
  static const char script[] = "#!/bin/sh\necho \"$*\"\necho \"$TMPDIR $PLM_GANG_FOLDER "
                               "[$PLM_READY_FD] $PLM_INSTANCE $PLM_SUPERVISED "
                               "$PLM_LOG_TIMES $PLM_LOG_FILE\"\n"
                               "ends() { ls -l /proc/$$/fd | grep -cF \"$1\"; }\n"
                               "ends \"$TMPDIR\"\nends \"$(readlink /proc/$$/fd/1)\"\nexit 7\n";
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = add(supervisor, PLM_STAGE_IDLE);
  char path[PLM_PATH_SIZE], folder[PLM_PATH_SIZE], line[4 * PLM_PATH_SIZE], *log;
  const char *before = getenv("PATH");
  char paths[PLM_PATH_SIZE];
  size_t size;
  int status;
  struct stat info;
  snprintf(paths, sizeof paths, "%s:%s", scratch_directory(), before);
  snprintf(path, sizeof path, "%s", scratch_path("mpirun"));
  assert_int_equal(plm_file_write(path, script, strlen(script), 0755, NULL), PLM_OK);
  setenv("PATH", paths, 1);
  setenv("PLM_READY_FD", "7", 1); /* of this process, not of its child */
  bind_endpoint(supervisor, "feed");
  bind_endpoint(supervisor, "announcements");
  bind_endpoint(supervisor, "evaluation_feed");
  supervisor->gang.hung = true; /* the one before */
  supervised_start(&supervisor->launcher, stage);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  assert_false(supervisor->gang.hung);
  assert_false(is_bound(supervisor, "feed") || is_bound(supervisor, "announcements"));
  assert_true(is_bound(supervisor, "evaluation_feed")); /* another stage's */
  snprintf(folder, sizeof folder, "%s", supervisor->gang.folder.path);
  assert_true(stat(folder, &info) == 0 && (info.st_mode & 07777) == 0700);
  assert_true(supervisor->gang.log_pid > 0 && supervisor->gang.log_fd >= 0 &&
              supervisor->gang.first_fd == -1);
  assert_int_equal(waitpid(stage->pid, &status, 0), stage->pid);
  assert_int_equal(status, EXITED(7));
  /* the log is complete when its writer has ended */
  assert_int_equal(waitpid(supervisor->gang.log_pid, &status, 0), supervisor->gang.log_pid);
  supervisor->gang.log_pid = 0;
  assert_int_equal(plm_file_read(stage->tail.path, 1 << 20, &log, &size, NULL), PLM_OK);
  snprintf(line, sizeof line, "%s %s [] 0 %d.trainer.0 1 %s\n1\n3\n", folder, folder, (int)getpid(),
           stage->tail.path);
  const char *second = strchr(log, '\n');
  assert_non_null(second);
  assert_string_equal(second + 1, line);
  assert_memory_equal(log, "-np 2 --bind-to none ", 21);
  snprintf(line, sizeof line, " %s -c %s/pipeline.yaml --run %s\n", scratch_path("bin/plm-trainer"),
           supervisor->stages.config->run, supervisor->stages.config->run);
  assert_non_null(strstr(log, line));
  free(log);
  supervisor->gang.first_gone_ms = supervisor->gang.ask_ms = 5;
  supervisor->gang.ranks_seen = true;
  gang_ended(&supervisor->gang);
  assert_true(supervisor->gang.log_fd == -1 && supervisor->gang.first_gone_ms == 0 &&
              supervisor->gang.ask_ms == 0);
  assert_false(supervisor->gang.ranks_seen);
  assert_int_equal(stat(folder, &info), -1);
  close(stage->ready_fd);
  setenv("PATH", before, 1);
}

static void without_mpirun_nothing_is_started(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = add(supervisor, PLM_STAGE_IDLE);
  char before[PLM_PATH_SIZE];
  snprintf(before, sizeof before, "%s", getenv("PATH"));
  setenv("PATH", "/nowhere", 1);
  supervised_start(&supervisor->launcher, stage);
  setenv("PATH", before, 1);
  assert_int_equal(stage->state, PLM_STAGE_FATAL);
  assert_string_equal(stage->failed_how, "could not be started: mpirun is not on PATH, and "
                                         "trainer.ranks above 1 needs it");
  assert_true(supervisor->gang.log_fd == -1 && supervisor->gang.log_pid == 0);
}

/* It is ready when it has bound both of its endpoints, and no other stage's count. */
static void it_is_ready_when_it_has_bound_everything(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = add(supervisor, PLM_STAGE_STARTING);
  supervisor->gang.log_pid = stage->pid = sleeper();
  supervised_tick(&supervisor->launcher, stage, 1000);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  bind_endpoint(supervisor, "announcements");
  supervised_tick(&supervisor->launcher, stage, 1000);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  bind_endpoint(supervisor, "feed");
  const pid_t pid = stage->pid;
  stage->pid = 0; /* nothing is looked at once mpirun has ended */
  supervised_tick(&supervisor->launcher, stage, 1000);
  assert_int_equal(stage->state, PLM_STAGE_STARTING);
  stage->pid = pid;
  supervised_tick(&supervisor->launcher, stage, 1000);
  assert_int_equal(stage->state, PLM_STAGE_READY);
  assert_false(supervisor->gang.hung);
  kill(pid, SIGKILL);
  assert_int_equal(signal_of(pid), SIGKILL);
}

/* ---- the stop -------------------------------------------------------------------------------- */

static void it_is_asked_again_unless_it_was_ready(void **state)
{
  struct plm_supervisor *supervisor = *state;
  for (int ready = 0; ready < 2; ready++) {
    struct supervised *stage = add(supervisor, ready ? PLM_STAGE_READY : PLM_STAGE_STARTING);
    supervisor->gang.log_pid = stage->pid = sleeper();
    const int64_t before = plm_clock_ms();
    supervised_stop(supervisor->stages.config, stage);
    if (ready)
      assert_int_equal(supervisor->gang.ask_ms, 0);
    else
      assert_in_range(supervisor->gang.ask_ms, before + 1000, plm_clock_ms() + 1000);
    assert_int_equal(signal_of(stage->pid), SIGUSR1);
  }
  struct supervised *stage = add(supervisor, PLM_STAGE_STOPPING);
  supervisor->gang.log_pid = stage->pid = sleeper();
  supervisor->gang.ask_ms = 5000;
  gang_tick(&supervisor->gang, stage, 4999);
  assert_int_equal(supervisor->gang.ask_ms, 5000);
  assert_int_equal(waitpid(stage->pid, NULL, WNOHANG), 0);
  gang_tick(&supervisor->gang, stage, 5000);
  assert_int_equal(supervisor->gang.ask_ms, 6000);
  assert_int_equal(signal_of(stage->pid), SIGUSR1);
  gang_stop(&supervisor->gang, 0, true); /* a gang that has ended gets no signal */
}

/* ---- the writer of the log ------------------------------------------------------------------- */

/* Only its own end counts, and it is started again while mpirun lives. */
static void the_writer_of_the_log_is_known(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct gang *gang = &supervisor->gang;
  assert_false(gang_still_writes(NULL));
  gang_kill_writer(NULL);
  gang_reaped(NULL, 1);
  gang->log_pid = 0;
  assert_false(gang_still_writes(gang));
  const pid_t writer = gang->log_pid = sleeper();
  assert_true(gang_still_writes(gang));
  gang_reaped(gang, writer + 1);
  assert_true(gang_still_writes(gang));
  gang_kill_writer(gang);
  assert_int_equal(signal_of(writer), SIGKILL);
  gang_reaped(gang, writer);
  assert_false(gang_still_writes(gang));
  assert_false(gang_has_hung(NULL));
  assert_false(gang_has_hung(gang));
  gang->hung = true;
  assert_true(gang_has_hung(gang));
  gang->hung = false;
}

/* ---- an mpirun that does not end ------------------------------------------------------------- */

static void mpirun_may_live_for_a_while_after_rank_0(void **state)
{
  static const struct {
    const char *variable;
    int64_t grace_ms;
  } rows[] = {{NULL, 10000}, {"3", 3000},   {"1", 1000},   {"86400", 86400000}, {"86401", 10000},
              {"0", 10000},  {"-3", 10000}, {"3x", 10000}, {"", 10000}};
  struct plm_supervisor *supervisor = *state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct supervised *stage = add(supervisor, PLM_STAGE_READY);
    if (rows[i].variable != NULL) setenv("PLM_MPIRUN_GRACE_S", rows[i].variable, 1);
    supervisor->gang.log_pid = stage->pid = sleeper();
    supervisor->gang.first_gone_ms = 7;
    gang_tick(&supervisor->gang, stage, 7 + rows[i].grace_ms - 1);
    if (supervisor->gang.hung) fail_msg("row %zu", i);
    assert_int_equal(waitpid(stage->pid, NULL, WNOHANG), 0);
    gang_tick(&supervisor->gang, stage, 7 + rows[i].grace_ms);
    if (!supervisor->gang.hung) fail_msg("row %zu", i);
    assert_int_equal(signal_of(stage->pid), SIGKILL);
    assert_int_equal(supervisor->gang.first_gone_ms, 7);
    unsetenv("PLM_MPIRUN_GRACE_S");
  }
}

/* Rank 0 is gone when its descriptor says so or, before it was found, when no rank is left. */
static void the_end_of_rank_0_is_noticed(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct supervised *stage = add(supervisor, PLM_STAGE_READY);
  int ends[2];
  supervisor->gang.log_pid = stage->pid = sleeper();
  gang_tick(&supervisor->gang, stage, 1000);
  assert_int_equal(supervisor->gang.first_gone_ms, 0); /* no rank has been seen yet */
  supervisor->gang.ranks_seen = true;
  gang_tick(&supervisor->gang, stage, 2000);
  assert_int_equal(supervisor->gang.first_gone_ms, 2000);
  gang_tick(&supervisor->gang, stage, 3000);
  assert_int_equal(supervisor->gang.first_gone_ms, 2000);
  /* a descriptor that becomes readable, as a pidfd does */
  supervisor->gang.first_gone_ms = 0;
  close(STDIN_FILENO); /* its number may be 0 */
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(ends[0], 0);
  supervisor->gang.first_fd = ends[0];
  gang_tick(&supervisor->gang, stage, 4000);
  assert_int_equal(supervisor->gang.first_gone_ms, 0);
  assert_int_equal(write(ends[1], "x", 1), 1);
  gang_tick(&supervisor->gang, stage, 5000);
  assert_int_equal(supervisor->gang.first_gone_ms, 5000);
  gang_ended(&supervisor->gang);
  assert_int_equal(supervisor->gang.first_fd, -1);
  assert_int_equal(fcntl(ends[0], F_GETFD), -1);
  close(ends[1]);
  assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO);
  kill(stage->pid, SIGKILL);
  assert_int_equal(signal_of(stage->pid), SIGKILL);
}

/* A process with the trainer's name, which takes its lock once it is told to. */
static pid_t rank_of(const char *run, int told, int answer)
{
  const pid_t pid = fork();
  if (pid == 0) {
    struct plm_lock *lock;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "plm-trainer");
    if (write(answer, "", 1) != 1 || read(told, &byte, 1) != 1 ||
        plm_lock_acquire(run, "trainer", &lock, NULL) != PLM_OK || write(answer, "", 1) != 1)
      _exit(1);
    for (;;) pause();
  }
  assert_true(pid > 0);
  return pid;
}

/* Rank 0 is the one of the ranks that holds the trainer's lock. */
static void rank_0_is_found_by_its_lock(void **state)
{
  struct plm_supervisor *supervisor = *state;
  struct gang *gang = &supervisor->gang;
  struct supervised *stage = add(supervisor, PLM_STAGE_READY);
  const char *run = supervisor->stages.config->run;
  struct plm_lock *lock;
  int told[2], answer[2];
  char byte;
  assert_int_equal(pipe(told), 0);
  assert_int_equal(pipe(answer), 0);
  gang->log_pid = stage->pid = rank_of(run, told[0], answer[1]);
  assert_int_equal(read(answer[0], &byte, 1), 1);
  assert_int_equal(plm_lock_acquire(run, "trainer", &lock, NULL), PLM_OK);
  gang_tick(gang, stage, 1000);
  assert_true(gang->ranks_seen);
  assert_int_equal(gang->first_fd, -1); /* the lock is not that of a rank */
  plm_lock_release(lock);
  gang_tick(gang, stage, 2000);
  assert_int_equal(gang->first_fd, -1);
  assert_int_equal(write(told[1], "", 1), 1);
  assert_int_equal(read(answer[0], &byte, 1), 1);
  gang_tick(gang, stage, 3000);
  assert_true(gang->first_fd >= 0);
  gang_tick(gang, stage, 4000);
  assert_int_equal(gang->first_gone_ms, 0);
  kill(stage->pid, SIGKILL);
  assert_int_equal(signal_of(stage->pid), SIGKILL);
  gang_tick(gang, stage, 5000);
  assert_int_equal(gang->first_gone_ms, 5000);
  gang_ended(gang);
  for (int i = 0; i < 2; i++) close(told[i]), close(answer[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(mpirun_is_started_with_a_folder_and_a_log),
      TEST(without_mpirun_nothing_is_started),
      TEST(it_is_ready_when_it_has_bound_everything),
      TEST(it_is_asked_again_unless_it_was_ready),
      TEST(the_writer_of_the_log_is_known),
      TEST(mpirun_may_live_for_a_while_after_rank_0),
      TEST(the_end_of_rank_0_is_noticed),
      TEST(rank_0_is_found_by_its_lock),
  };
  return cmocka_run_group_tests_name("supervisor gang", tests, NULL, NULL);
}
