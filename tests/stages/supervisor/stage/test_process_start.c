/* Starting the process of a stage while each call that this takes fails in turn, in the supervisor
 * or in the child: the reason is told, and no descriptor stays open. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/collective/collective.h"
#include "stages/supervisor/stage/supervisor_process.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/open_call.h"
#include "tests/support/harness/scratch.h"

static long left = -1; /* calls that succeed before one fails; -1: all do */

static bool fails(void)
{
  if (left < 0 || left-- > 0) return false;
  errno = EMFILE;
  return true;
}

/* These take the place of libc's functions in this program. */
int open(const char *path, int flags, ...)
{
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = open_call_mode(flags, arguments);
  va_end(arguments);
  return fails() ? -1 : open_call_run(path, flags, mode);
}

int pipe2(int ends[2], int flags)
{
  return fails() ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int dup2(int from, int to)
{
  return fails() ? -1 : dup3(from, to, 0);
}

int fcntl(int file, int command, ...)
{
  va_list arguments;
  va_start(arguments, command);
  const long value = va_arg(arguments, long);
  va_end(arguments);
  /* that a pipe may block is no error */
  return command != F_SETFL && fails() ? -1 : (int)syscall(SYS_fcntl, file, command, value);
}

pid_t fork(void)
{
  static pid_t (*libraries)(void);
  if (libraries == NULL) libraries = dlsym(RTLD_NEXT, "fork");
  return fails() ? -1 : libraries();
}

static int count_descriptors(void)
{
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  assert_non_null(folder);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

/* Starts a shell that prints, once for each call that may fail. Returns how many there are. */
static int try_each(const char *script, const struct plm_process_gang *gang, const char *log)
{
  char *const argv[] = {"/bin/sh", "-c", (char *)script, NULL};
  const struct plm_process_start start = {.argv = argv,
                                          .stage = "packer",
                                          .instance = 3,
                                          .log_path = log,
                                          .nice = gang == NULL,
                                          .gang = gang};
  const int before = count_descriptors();
  for (int at = 0;; at++) {
    struct plm_error error = {0};
    int ready = -1, ended = 0;
    pid_t child = 0;
    left = at;
    const plm_status status = plm_process_start(&start, &child, &ready, &error);
    left = -1;
    if (status == PLM_OK) {
      assert_true(fcntl(ready, F_GETFL, 0) & O_NONBLOCK);
      assert_int_equal(close(ready), 0);
      assert_int_equal(waitpid(child, &ended, 0), child);
      assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    } else {
      if (strstr(error.what, strerror(EMFILE)) == NULL) fail_msg("%d: %s", at, error.what);
      while (waitpid(-1, NULL, 0) > 0) continue; /* the child that could not become the program */
    }
    assert_int_equal(count_descriptors(), before);
    if (status == PLM_OK) return at;
  }
}

/* The program leads a session of its own, handles and blocks no signal, and reads nothing. The
 * digits that hold signals 32 and 33 are left out: they belong to libc, which changes them for
 * nobody, so they are as this program found them. */
static void each_call_that_fails_is_told(void **state)
{
  static const char script[] = "echo \"$PLM_SUPERVISED $PLM_INSTANCE ${PLM_READY_FD+ready}\"\n"
                               "echo \"$PLM_LOG_TIMES $PLM_LOG_FILE $OMP_WAIT_POLICY $(nice)\"\n"
                               "sed -n 's/^Sig\\(Blk\\|Ign\\):\\t\\(.\\{7\\}\\)../\\1 \\2--/p' "
                               "/proc/self/status\n"
                               "[ \"$(cut -d' ' -f6 /proc/$$/stat) $(readlink /proc/$$/fd/0)\" = "
                               "\"$$ /dev/null\" ] || exit 1";
  char log[PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  sigset_t blocked, before;
  (void)state;
  snprintf(log, sizeof log, "%s", scratch_path("packer.log"));
  signal(SIGHUP, SIG_IGN);
  signal(SIGRTMAX, SIG_IGN);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const int calls = try_each(script, NULL, log);
  sigprocmask(SIG_SETMASK, &before, NULL);
  signal(SIGHUP, SIG_DFL);
  signal(SIGRTMAX, SIG_DFL);
  /* who is not root can only become nicer */
  const int own = getpriority(PRIO_PROCESS, 0), nice = geteuid() != 0 && own > 1 ? own : 1;
  snprintf(expected, sizeof expected,
           "%d.packer.3 3 ready\n1 %s passive %d\nBlk 0000000--0000000\nIgn 0000000--0000000\n",
           (int)getpid(), log, nice);
  assert_string_equal(scratch_contents(log), expected);
  assert_int_equal(calls, 9);
}

/* mpirun keeps two descriptors more, and writes elsewhere. */
static void those_for_mpirun_are_told(void **state)
{
  int output[2], kept[2];
  char folder[PLM_PATH_SIZE], expected[3 * PLM_PATH_SIZE], said[3 * PLM_PATH_SIZE] = "",
                                                                    script[400];
  const char *root = geteuid() == 0 ? "1" : "none";
  (void)state;
  scratch_run(folder);
  assert_true(pipe2(output, O_CLOEXEC) == 0 && pipe2(kept, O_CLOEXEC) == 0);
  const struct plm_process_gang gang = {folder, output[1], {kept[0], kept[1]}};
  snprintf(script, sizeof script,
           "[ -e /proc/self/fd/%d ] && [ -e /proc/self/fd/%d ] || exit 1\n"
           "echo \"$TMPDIR $" PLM_GANG_FOLDER " ${PLM_READY_FD-none} ${OMP_WAIT_POLICY-none} "
           "${OMPI_ALLOW_RUN_AS_ROOT-none} ${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM-none}\"",
           kept[0], kept[1]);
  unsetenv("OMP_WAIT_POLICY");
  const int calls = try_each(script, &gang, scratch_path("gang.log"));
  snprintf(expected, sizeof expected, "%s %s none none %s %s\n", folder, folder, root, root);
  assert_true(read(output[0], said, sizeof said - 1) > 0);
  assert_string_equal(said, expected);
  assert_int_equal(calls, 10);
  assert_false(plm_file_exists(scratch_path("gang.log")));
  for (int i = 0; i < 2; i++) close(output[i]), close(kept[i]);
}

/* A program whose supervisor dies is told by SIGTERM, and by SIGUSR1 if it has to pass it on. */
static void the_death_of_the_supervisor_is_told(void **state)
{
  static const char script[] =
      "trap 'echo TERM; exit' TERM\ntrap 'echo USR1; exit' USR1\necho begun\n"
      "while :; do sleep 0.01; done";
  static const char *const told[] = {"begun\nTERM\n", "begun\nUSR1\n", "begun\nUSR1\n"};
  char *const argv[] = {"/bin/sh", "-c", (char *)script, NULL};
  int kept[2];
  (void)state;
  assert_int_equal(pipe2(kept, O_CLOEXEC), 0);
  for (int i = 0; i < 3; i++) {
    char log[PLM_PATH_SIZE], name[16];
    snprintf(name, sizeof name, "%d.log", i);
    snprintf(log, sizeof log, "%s", scratch_path(name));
    scratch_write(log, "", 0);
    const int output = open(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    const struct plm_process_gang gang = {scratch_directory(), output, {kept[0], kept[1]}};
    const struct plm_process_start start = {.argv = argv,
                                            .stage = "trainer",
                                            .log_path = log,
                                            .gang = i == 1 ? &gang : NULL,
                                            .elsewhere = i == 2};
    const pid_t supervisor = fork();
    if (supervisor == 0) {
      pid_t pid;
      int ready;
      _exit(plm_process_start(&start, &pid, &ready, NULL) != PLM_OK ||
            !scratch_appears(log, "begun\n", 20000));
    }
    int ended = 1;
    assert_int_equal(waitpid(supervisor, &ended, 0), supervisor);
    assert_int_equal(ended, 0);
    if (!scratch_appears(log, told[i], 20000)) fail_msg("%d: %s", i, scratch_contents(log));
    close(output);
  }
  for (int i = 0; i < 2; i++) close(kept[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_that_fails_is_told),
                                     cmocka_unit_test(those_for_mpirun_are_told),
                                     cmocka_unit_test(the_death_of_the_supervisor_is_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
