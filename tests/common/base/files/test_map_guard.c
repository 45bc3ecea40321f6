/* A file that is truncated while it is mapped ends the process with a message, whichever thread
 * reads it. Each case runs in a process of its own. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files/map_guard.h"
#include "common/base/process/thread.h"
#include "common/checkpoint/safetensors.h"
#include "tests/support/harness/scratch.h"

enum { VALUES = 1 << 18, LIMIT_S = 60 };

/* As fork, but the child is ended by SIGALRM if a fault of the handler lets it run for ever. */
static pid_t fork_limited(void)
{
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) alarm(LIMIT_S);
  return pid;
}

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
  char text[1024] = "", expected[1024];
  int ends[2], status;
  const char *path = scratch_path("guarded.safetensors");
  write_tensor(path);
  assert_int_equal(pipe(ends), 0);
  const pid_t pid = fork_limited();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    child(path, in_thread, second);
  }
  close(ends[1]);
  size_t length = 0;
  while (length < sizeof text - 1) {
    const ssize_t got = read(ends[0], text + length, sizeof text - 1 - length);
    if (got <= 0) break;
    length += (size_t)got;
  }
  close(ends[0]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  snprintf(expected, sizeof expected, "error: %s changed or became unreadable while it was read\n",
           path);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || length != strlen(expected) ||
      strcmp(text, expected) != 0)
    fail_msg("status %x, \"%s\"", (unsigned)status, text);
}

static void a_fault_of_the_main_thread_is_reported(void **state)
{
  (void)state;
  run_case(false, false);
}

static void a_fault_of_a_worker_thread_is_reported(void **state)
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
  const pid_t pid = fork_limited();
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

/* ---- a file that is not ours ---------------------------------------------------------------- */

enum { PAGE = 4096, PAGES = 5, MAPS = 8192 };

/* Maps a file of five pages, which is then empty. */
static const volatile unsigned char *map_emptied(const char *path)
{
  static const unsigned char bytes[PAGES * PAGE];
  scratch_write(path, bytes, sizeof bytes);
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) _exit(2);
  void *map = mmap(NULL, sizeof bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (map == MAP_FAILED || ftruncate(descriptor, 0) != 0) _exit(2);
  close(descriptor);
  return map;
}

/* Reads a byte of such a file in a child, in which two of its pages are guarded, the second one and
 * the fourth one, and perhaps not any longer the first of these. Returns how that ends. */
static int read_byte(size_t at, bool remove_first, int exit_code)
{
  int status;
  const pid_t pid = fork_limited();
  if (pid == 0) {
    close(STDERR_FILENO);
    signal(SIGBUS, SIG_DFL);
    const volatile unsigned char *map = map_emptied(scratch_path("emptied"));
    plm_guard_exit_code = exit_code;
    plm_map_guard_add((const void *)(map + PAGE), PAGE, "second");
    plm_map_guard_add((const void *)(map + 3 * PAGE), PAGE, "fourth");
    if (remove_first) plm_map_guard_remove((const void *)(map + PAGE));
    (void)map[at];
    _exit(3);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

/* Fails unless a child ended as it does if the map is guarded, or as it does if it is not. */
static void expect_end(int status, bool guarded, size_t row)
{
  const bool said = WIFEXITED(status) && WEXITSTATUS(status) == 1;
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
  if (guarded ? !said : !killed) fail_msg("row %zu: status %#x", row, (unsigned)status);
}

static void the_whole_map_is_guarded_and_no_more(void **state)
{
  static const struct {
    size_t at;
    bool remove_first, guarded;
  } rows[] = {
      {PAGE - 1, false, false},    {PAGE, false, true},          {2 * PAGE - 1, false, true},
      {2 * PAGE, false, false},    {3 * PAGE - 1, false, false}, {3 * PAGE, false, true},
      {4 * PAGE - 1, false, true}, {4 * PAGE, false, false},     {PAGE, true, false},
      {2 * PAGE - 1, true, false}, {3 * PAGE, true, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_end(read_byte(rows[i].at, rows[i].remove_first, 1), rows[i].guarded, i);
}

static void a_stage_ends_with_a_code_of_its_own(void **state)
{
  (void)state;
  const int status = read_byte(PAGE, false, 6);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

/* One map more is not guarded, and a place that is free is used again. A map may be registered
 * twice. */
static void at_most_8192_maps_are_guarded(void **state)
{
  static const struct {
    int others, removed, again;
    bool guarded;
  } rows[] = {{MAPS - 1, 0, 0, true}, {MAPS, 0, 0, false},     {MAPS, 1, 0, true},
              {MAPS - 2, 0, 1, true}, {MAPS - 1, 0, 1, false}, {MAPS + 3, 4, 1, true}};
  static char many[MAPS + 3];
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int status;
    const pid_t pid = fork_limited();
    if (pid == 0) {
      close(STDERR_FILENO);
      signal(SIGBUS, SIG_DFL);
      const volatile unsigned char *map = map_emptied(scratch_path("emptied"));
      for (int k = 0; k < rows[i].others; k++) plm_map_guard_add(&many[k], 1, "other");
      for (int k = 0; k < rows[i].removed; k++) plm_map_guard_remove(&many[100 * k]);
      for (int k = 0; k <= rows[i].again; k++)
        plm_map_guard_add((const void *)map, PAGE, "this one");
      for (int k = 0; k < rows[i].again; k++) plm_map_guard_remove((const void *)map);
      (void)map[0];
      _exit(3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    expect_end(status, rows[i].guarded, i);
  }
}

static void end_with_seven(int number)
{
  (void)number;
  _exit(7);
}

/* What was to happen after a SIGBUS before the guard was there happens after one elsewhere. */
static void an_earlier_handler_is_kept(void **state)
{
  (void)state;
  int status;
  const pid_t pid = fork_limited();
  if (pid == 0) {
    const volatile unsigned char *map = map_emptied(scratch_path("emptied"));
    signal(SIGBUS, end_with_seven);
    for (int i = 0; i < 2; i++) plm_map_guard_add((const void *)(map + PAGE), PAGE, "second");
    (void)map[0];
    _exit(3);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fault_of_the_main_thread_is_reported),
      cmocka_unit_test(a_fault_of_a_worker_thread_is_reported),
      cmocka_unit_test(other_faults_are_not_hidden),
      cmocka_unit_test(the_whole_map_is_guarded_and_no_more),
      cmocka_unit_test(a_stage_ends_with_a_code_of_its_own),
      cmocka_unit_test(at_most_8192_maps_are_guarded),
      cmocka_unit_test(an_earlier_handler_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
