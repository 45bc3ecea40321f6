/* Log files are rotated at their limit, and readers follow over the rotation without losing or
 * repeating a line. */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/log/log_file.h"
#include "common/run/log_tail.h"
#include "tests/support/harness/scratch.h"

enum { LIMIT = 2000 };

/* A child process that logs as a stage does: line `first` to line `first + count - 1`. */
static pid_t start_writer(const char *log, int first, int count)
{
  const pid_t child = fork();
  if (child != 0) return child;
  char limit[32];
  const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  snprintf(limit, sizeof limit, "%d", LIMIT);
  setenv(PLM_LOG_FILE, log, 1);
  setenv(PLM_LOG_BYTES, limit, 1);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  plm_log_init("writer", PLM_LOG_INFO);
  for (int i = first; i < first + count; i++) plm_info("line %d", i);
  printf("standard output moves, too\n");
  fflush(stdout);
  _exit(0);
}

static void wait_for_writer(pid_t child)
{
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

struct collected {
  int next;       /* the line that is expected */
  int lines;      /* all of them */
  int last_words; /* lines of standard output */
};

static void expect_next(void *context, const char *line)
{
  struct collected *collected = context;
  char expected[64];
  collected->lines++;
  if (strcmp(line, "standard output moves, too") == 0) {
    collected->last_words++;
    return;
  }
  snprintf(expected, sizeof expected, "writer: line %d", collected->next++);
  assert_string_equal(line, expected);
}

static void files_are_bounded_in_size_and_number(void **state)
{
  (void)state;
  char log[PLM_PATH_SIZE], name[PLM_PATH_SIZE];
  snprintf(log, sizeof log, "%s", scratch_path("bounded.log"));
  wait_for_writer(start_writer(log, 0, 2000));
  for (unsigned number = 0; number <= PLM_LOG_FILES_KEPT; number++) {
    uint64_t size;
    assert_true(plm_log_file_name(name, log, number));
    assert_int_equal(plm_file_size(name, &size, NULL), PLM_OK);
    assert_in_range(size, 1, LIMIT + 100);
  }
  assert_true(plm_log_file_name(name, log, PLM_LOG_FILES_KEPT + 1));
  assert_false(plm_file_exists(name));
}

static void a_reader_follows(void **state)
{
  (void)state;
  enum { LINES = 300 }; /* about three files, so that a slow reader loses none */
  static struct plm_tail tail;
  char log[PLM_PATH_SIZE];
  struct collected collected = {0};
  snprintf(log, sizeof log, "%s", scratch_path("followed.log"));
  plm_tail_init(&tail, log, 0);
  for (int round = 0; round < 20; round++) {
    const pid_t writer = start_writer(log, round * LINES, LINES);
    while (collected.next < (round + 1) * LINES || collected.last_words <= round)
      plm_tail_read(&tail, 100, expect_next, &collected);
    wait_for_writer(writer);
  }
  assert_false(plm_tail_read(&tail, 0, expect_next, &collected));
}

static void a_reader_may_begin_during_a_rotation(void **state)
{
  (void)state;
  enum { ROUNDS = 100, LINES = 300 };
  static struct plm_tail tail;
  for (int round = 0; round < ROUNDS; round++) {
    char name[32], log[PLM_PATH_SIZE];
    struct collected collected = {0};
    snprintf(name, sizeof name, "begun%d.log", round);
    snprintf(log, sizeof log, "%s", scratch_path(name));
    plm_tail_init(&tail, log, 0);
    const pid_t writer = start_writer(log, 0, LINES);
    for (int pause = round; pause > 0; pause--) usleep(1);
    while (collected.last_words == 0) plm_tail_read(&tail, 0, expect_next, &collected);
    wait_for_writer(writer);
    assert_int_equal(collected.next, LINES);
  }
}

static void the_last_lines_may_lie_in_several_files(void **state)
{
  (void)state;
  enum { LINES = 400 };
  static struct plm_tail tail;
  char log[PLM_PATH_SIZE];
  snprintf(log, sizeof log, "%s", scratch_path("last.log"));
  wait_for_writer(start_writer(log, 0, 10));
  const struct plm_tail_place after_ten = plm_tail_end(log);
  wait_for_writer(start_writer(log, 10, LINES - 10));
  const size_t wanted[] = {0, 1, 3, 150, 301, SIZE_MAX};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    /* the last line is that of standard output, and another is at the end of the first ten */
    const int numbered = wanted[i] == SIZE_MAX ? LINES : (int)wanted[i] - 1;
    struct collected collected = {.next = LINES - numbered};
    plm_tail_init_last(&tail, log, (struct plm_tail_place){0}, wanted[i]);
    plm_tail_read(&tail, 0, expect_next, &collected);
    assert_int_equal(collected.lines, wanted[i] == SIZE_MAX ? LINES + 2 : (int)wanted[i]);
  }
  struct collected collected = {.next = 10};
  plm_tail_init_last(&tail, log, after_ten, SIZE_MAX);
  plm_tail_read(&tail, 0, expect_next, &collected);
  assert_int_equal(collected.next, LINES);
  collected = (struct collected){.next = 10};
  plm_tail_init_last(&tail, log, after_ten, 10 * LINES);
  plm_tail_read(&tail, 0, expect_next, &collected);
  assert_int_equal(collected.next, LINES);
}

static void an_idle_log_is_rotated_only_at_its_limit(void **state)
{
  (void)state;
  char log[PLM_PATH_SIZE], older[PLM_PATH_SIZE], text[LIMIT];
  snprintf(log, sizeof log, "%s", scratch_path("idle.log"));
  snprintf(older, sizeof older, "%s", scratch_path("idle.log.1"));
  setenv(PLM_LOG_BYTES, "2000", 1);
  memset(text, 'x', sizeof text);
  assert_int_equal(plm_file_write(log, text, LIMIT - 1, 0644, NULL), PLM_OK);
  plm_log_file_turn_idle(log);
  assert_true(plm_file_exists(log));
  assert_int_equal(plm_file_write(log, text, LIMIT, 0644, NULL), PLM_OK);
  plm_log_file_turn_idle(log);
  assert_false(plm_file_exists(log));
  assert_true(plm_file_exists(older));
  unsetenv(PLM_LOG_BYTES);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_are_bounded_in_size_and_number),
      cmocka_unit_test(a_reader_follows),
      cmocka_unit_test(a_reader_may_begin_during_a_rotation),
      cmocka_unit_test(the_last_lines_may_lie_in_several_files),
      cmocka_unit_test(an_idle_log_is_rotated_only_at_its_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
