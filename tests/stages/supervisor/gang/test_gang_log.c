/* The log of a gang is rotated while mpirun writes it, and loses nothing if the writer or the
 * supervisor is killed. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "common/base/log/log_file.h"
#include "stages/supervisor/gang/gang_log.h"
#include "tests/support/harness/scratch.h"

/* Opens the folder, the pipe and the log of this name. */
static struct plm_gang_log open_log(const char *name, struct plm_gang_folder *folder, int ends[2])
{
  char socket_path[256];
  snprintf(socket_path, sizeof socket_path, "%s/plm-%s%ld.sock", plm_temporary_folder(), name,
           (long)getpid());
  assert_int_equal(plm_gang_folder_make(socket_path, folder, NULL), PLM_OK);
  assert_int_equal(plm_gang_log_pipe(ends, NULL), PLM_OK);
  return (struct plm_gang_log){scratch_path(name), ends[0], folder};
}

static void put(int output, const char *text)
{
  assert_int_equal(write(output, text, strlen(text)), strlen(text));
}

static void ends_with_0(pid_t writer)
{
  int status = 1;
  assert_int_equal(waitpid(writer, &status, 0), writer);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

/* The text of log number `number`; NULL if there is none. The caller frees it. */
static char *text_of(const char *log, unsigned number)
{
  char path[PLM_PATH_SIZE], *text = NULL;
  size_t size;
  assert_true(plm_log_file_name(path, log, number));
  return plm_file_read(path, 1 << 20, &text, &size, NULL) == PLM_OK ? text : NULL;
}

static void files_have_whole_lines(void **state)
{
  (void)state;
  enum { LINES = 40 };
  struct plm_gang_folder folder;
  char expected[LINES * 32] = "", found[sizeof expected] = "", line[32];
  int ends[2];
  pid_t writer;
  const struct plm_gang_log log = open_log("whole", &folder, ends);
  setenv(PLM_LOG_BYTES, "190", 1); /* reached within a line */
  assert_int_equal(plm_gang_log_start(&log, &writer, NULL), PLM_OK);
  close(ends[0]);
  for (int i = 0; i < LINES; i++) {
    snprintf(line, sizeof line, "line %d of a rank\n", i);
    strcat(expected, line);
    put(ends[1], "line "); /* a line that comes in two parts */
    if (i == 11) assert_true(scratch_appears(log.path, "line 10 of a rank\nline ", 10000));
    assert_int_equal(kill(writer, i % 2 == 0 ? SIGTERM : SIGUSR1), 0);
    put(ends[1], line + 5);
  }
  put(ends[1], "no end");
  strcat(expected, "no end");
  close(ends[1]);
  ends_with_0(writer);
  unsigned files = 0;
  for (unsigned number = PLM_LOG_FILES_KEPT + 1; number-- > 0;) {
    char *text = text_of(log.path, number);
    if (text == NULL) continue;
    assert_memory_equal(text, "line ", 5);
    assert_true(number == 0 || text[strlen(text) - 1] == '\n');
    strcat(found, text);
    free(text);
    files++;
  }
  assert_true(files > 1);
  assert_string_equal(found, expected);
  unsetenv(PLM_LOG_BYTES);
  assert_true(plm_file_exists(folder.path));
  plm_gang_folder_remove(&folder);
}

/* The signals that a process blocks, as the kernel prints them. */
static void read_blocked(pid_t process, char found[32])
{
  char path[64], *text = NULL;
  size_t size;
  snprintf(path, sizeof path, "/proc/%d/status", (int)process);
  assert_int_equal(plm_file_read(path, 1 << 16, &text, &size, NULL), PLM_OK);
  const char *at = strstr(text, "\nSigBlk:\t");
  assert_non_null(at);
  snprintf(found, 32, "%.16s", at + strlen("\nSigBlk:\t"));
  free(text);
}

/* It writes the last lines of ranks that are told to stop. */
static void the_writer_blocks_all_signals(void **state)
{
  (void)state;
  struct plm_gang_folder folder;
  char before[32], all_blocked[32], after[32], found[32];
  int ends[2];
  pid_t writer;
  sigset_t all, none;
  const struct plm_gang_log log = open_log("blocks", &folder, ends);
  read_blocked(getpid(), before);
  assert_int_equal(plm_gang_log_start(&log, &writer, NULL), PLM_OK);
  read_blocked(getpid(), after);
  read_blocked(writer, found);
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &none);
  read_blocked(getpid(), all_blocked);
  sigprocmask(SIG_SETMASK, &none, NULL);
  assert_string_equal(found, all_blocked);
  assert_string_equal(before, after);
  close(ends[0]);
  close(ends[1]);
  ends_with_0(writer);
  plm_gang_folder_remove(&folder);
}

static void a_killed_writer_loses_nothing(void **state)
{
  (void)state;
  struct plm_gang_folder folder;
  int ends[2], status;
  pid_t writer;
  const struct plm_gang_log log = open_log("killed", &folder, ends);
  assert_int_equal(plm_gang_log_start(&log, &writer, NULL), PLM_OK);
  put(ends[1], "first\n");
  assert_true(scratch_appears(log.path, "first\n", 10000));
  assert_int_equal(getsid(writer), writer); /* no terminal stops it */
  kill(writer, SIGKILL);
  assert_int_equal(waitpid(writer, &status, 0), writer);
  put(ends[1], "second\n");
  assert_int_equal(plm_gang_log_start(&log, &writer, NULL), PLM_OK);
  close(ends[0]);
  close(ends[1]);
  ends_with_0(writer);
  char *text = text_of(log.path, 0);
  assert_string_equal(text, "first\nsecond\n");
  free(text);
  plm_gang_folder_remove(&folder);
}

/* Without its supervisor, the writer also removes the folder, and nobody else's lock or descriptor
 * is kept by it. */
static void the_writer_outlives_the_supervisor(void **state)
{
  (void)state;
  struct plm_gang_folder folder;
  int ends[2], held[2], status;
  const struct plm_gang_log log = open_log("orphan", &folder, ends);
  assert_int_equal(pipe2(held, O_CLOEXEC), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    pid_t writer;
    _exit(plm_gang_log_start(&log, &writer, NULL) != PLM_OK);
  }
  assert_int_equal(waitpid(supervisor, &status, 0), supervisor);
  assert_int_equal(status, 0);
  close(held[1]);
  struct pollfd item = {.fd = held[0], .events = POLLIN};
  assert_int_equal(poll(&item, 1, 10000), 1); /* its last writing end is closed */
  close(held[0]);
  put(ends[1], "after its death\n");
  assert_true(scratch_appears(log.path, "after its death\n", 10000));
  assert_true(plm_file_exists(folder.path));
  close(ends[0]);
  close(ends[1]);
  for (int i = 0; i < 1000 && plm_file_exists(folder.path); i++) usleep(10000);
  assert_false(plm_file_exists(folder.path));
  close(folder.lock);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_have_whole_lines),
      cmocka_unit_test(the_writer_blocks_all_signals),
      cmocka_unit_test(a_killed_writer_loses_nothing),
      cmocka_unit_test(the_writer_outlives_the_supervisor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
