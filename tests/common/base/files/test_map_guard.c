/* A file that is truncated while it is mapped ends the process with a message, whichever thread
 * reads it. Each case runs in a process of its own. */
#include "tests/support/harness/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/map_guard.h"
#include "common/base/process/thread.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/harness/scratch.h"

enum { VALUES = 1 << 18 };

static void write_tensor(const char *path)
{
  static float values[VALUES];
  const struct plm_tensor_info tensor = {.name = "a",
                                         .dtype = PLM_F32,
                                         .rank = 1,
                                         .shape = {VALUES},
                                         .bytes = sizeof values,
                                         .data = values};
  assert_int_equal(plm_safetensors_write(path, &tensor, 1, NULL, 0, NULL), PLM_OK);
}

static void *read_last(void *context)
{
  const struct plm_tensor_info *tensor = context;
  const volatile unsigned char *data = tensor->data;
  (void)data[tensor->bytes - 1];
  return NULL;
}

/* The child's part: exits with 0 if the read does not end the process. */
static void child(const char *path, bool in_thread, bool second)
{
  struct plm_safetensors *file, *other;
  pthread_t thread;
  if (plm_safetensors_open(path, &file, NULL) != PLM_OK) _exit(2);
  if (second) { /* another map that is closed does not matter */
    if (plm_safetensors_open(path, &other, NULL) != PLM_OK) _exit(2);
    plm_safetensors_close(other);
  }
  if (truncate(path, 4096) != 0) _exit(2);
  void *tensor = (void *)plm_safetensors_at(file, 0);
  if (!in_thread) {
    read_last(tensor);
  } else {
    if (plm_thread_start(&thread, "reader", read_last, tensor, NULL) != PLM_OK) _exit(2);
    pthread_join(thread, NULL);
  }
  _exit(0);
}

static void run_case(bool in_thread, bool second)
{
  char text[1024] = "";
  int ends[2], status;
  const char *path = scratch_path("guarded.safetensors");
  write_tensor(path);
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    child(path, in_thread, second);
  }
  close(ends[1]);
  for (size_t length = 0; length < sizeof text - 1;) {
    const ssize_t got = read(ends[0], text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += (size_t)got;
  }
  close(ends[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || strstr(text, path) == NULL ||
      strstr(text, "changed or became unreadable while it was read\n") == NULL)
    fail_msg("status %x, \"%s\"", (unsigned)status, text);
}

static void the_main_thread_is_told(void **state)
{
  (void)state;
  run_case(false, false);
}

static void a_worker_thread_is_told(void **state)
{
  (void)state;
  run_case(true, false);
  run_case(true, true);
}

/* A SIGBUS elsewhere still kills, even with handlers that put each other back. */
static void other_faults_are_not_hidden(void **state)
{
  (void)state;
  int status;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGBUS, SIG_DFL);
    plm_map_guard_add(&status, sizeof status, "nothing");
    plm_map_guard_remove(&status);
    raise(SIGBUS);
    raise(SIGBUS);
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_main_thread_is_told),
      cmocka_unit_test(a_worker_thread_is_told),
      cmocka_unit_test(other_faults_are_not_hidden),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
