/* The texts and exit codes of each status, and how an error is filled in. */
#include "tests/support/harness/aborted.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/status.h"

static const struct {
  plm_status status;
  const char *text;
  int exit_code, stage_code;
  bool may_pass;
} statuses[] = {
    {PLM_OK, "success", 0, 0, false},
    {PLM_FAILURE, "failure", 1, 1, false},
    {PLM_IO, "input/output error", 1, 6, true},
    {PLM_NO_SPACE, "no space left on the device", 1, 6, true},
    {PLM_NO_MEMORY, "out of memory", 1, 1, true},
    {PLM_NO_DESCRIPTORS, "too many open files", 1, 6, true},
    {PLM_CORRUPT, "corrupt data", 1, 1, false},
    {PLM_FORMAT, "malformed input", 1, 7, false},
    {PLM_NOT_FOUND, "not found", 1, 1, false},
    {PLM_EXISTS, "already exists", 1, 1, false},
    {PLM_LIMIT, "limit exceeded", 1, 1, false},
    {PLM_UNSUPPORTED, "not supported", 1, 7, false},
    {PLM_PROTOCOL, "protocol violation", 1, 1, false},
    {PLM_BUSY, "in use by another process", 1, 6, false},
    {PLM_USAGE, "usage error", 2, 2, false},
    {PLM_CONFIG, "configuration error", 2, 2, false},
    {PLM_NOT_RUNNING, "not running", 3, 3, false},
    {PLM_TIMEOUT, "timed out", 4, 4, false},
    {PLM_NOT_FINITE, "a value that is not finite", 5, 5, false},
    {PLM_UNAVAILABLE, "not available at present", 6, 6, false},
    {PLM_INTERRUPTED, "interrupted", 130, 130, false},
    {PLM_TERMINATED, "terminated", 143, 143, false},
    {PLM_AGAIN, "nothing ready yet", 1, 1, false},
    {PLM_STATUS_COUNT, "unknown status", 1, 1, false},
    {(plm_status)-1, "unknown status", 1, 1, false},
};

static void each_status_has_a_text_and_exit_codes(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    assert_string_equal(plm_status_text(statuses[i].status), statuses[i].text);
    assert_int_equal(plm_status_exit_code(statuses[i].status), statuses[i].exit_code);
    assert_int_equal(plm_status_stage_code(statuses[i].status), statuses[i].stage_code);
    assert_int_equal(plm_status_may_pass(statuses[i].status), statuses[i].may_pass);
  }
}

static void an_error_of_the_system_has_a_status(void **state)
{
  static const struct {
    int number;
    plm_status status;
    const char *hint;
  } cases[] = {
      {ENOSPC, PLM_NO_SPACE, ""},
      {EDQUOT, PLM_NO_SPACE, ""},
      {ENOENT, PLM_NOT_FOUND, ""},
      {ENOMEM, PLM_NO_MEMORY, ""},
      {EMFILE, PLM_NO_DESCRIPTORS, ""},
      {ENFILE, PLM_NO_DESCRIPTORS, ""},
      {EFBIG, PLM_LIMIT, "raise this process's limit on the size of files: ulimit -f unlimited"},
      {EIO, PLM_IO, ""},
      {EACCES, PLM_IO, ""},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char expected[200];
    struct plm_error error = {.where = "before", .hint = "before"};
    snprintf(expected, sizeof expected, "cannot open a/b: %s", strerror(cases[i].number));
    errno = cases[i].number;
    assert_int_equal(plm_error_errno(&error, "cannot open %s", "a/b"), cases[i].status);
    assert_int_equal(error.status, cases[i].status);
    assert_string_equal(error.what, expected);
    assert_string_equal(error.where, "");
    assert_string_equal(error.hint, cases[i].hint);
    errno = cases[i].number; /* nobody wants the text */
    assert_int_equal(plm_error_errno(NULL, "cannot open %s", "a/b"), cases[i].status);
  }
}

static void an_error_is_filled_in(void **state)
{
  (void)state;
  struct plm_error error = {.where = "before", .hint = "before"};
  assert_int_equal(plm_error_set(&error, PLM_LIMIT, "%d of %s", 3, "x"), PLM_LIMIT);
  assert_int_equal(error.status, PLM_LIMIT);
  assert_string_equal(error.what, "3 of x");
  assert_string_equal(error.where, "");
  assert_string_equal(error.hint, "");
  assert_int_equal(plm_error_where(&error, "line %d", 4), PLM_LIMIT);
  assert_int_equal(plm_error_hint(&error, "use %s", "y"), PLM_LIMIT);
  assert_string_equal(error.where, "line 4");
  assert_string_equal(error.hint, "use y");
  assert_int_equal(plm_error_set(&error, PLM_FORMAT, "again: %s", error.what), PLM_FORMAT);
  assert_string_equal(error.what, "again: 3 of x");
  assert_int_equal(plm_error_set(NULL, PLM_IO, "x"), PLM_IO);
  assert_int_equal(plm_error_where(NULL, "x"), PLM_FAILURE);
  assert_int_equal(plm_error_hint(NULL, "x"), PLM_FAILURE);
}

/* An error without a text has that of its status; where and hint are left out if they are empty. */
static void an_error_is_printed(void **state)
{
  (void)state;
  const struct plm_error bare = {.status = PLM_BUSY}, what = {.what = "it is wrong"},
                         brief = {.what = "w", .where = "p", .hint = "h"},
                         all = {.what = "it is wrong", .where = "file:3", .hint = "remove it"};
  plm_log_init("test", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  plm_error_print("name", &bare);
  plm_error_print("name", &what);
  plm_error_print("name", &all);
  plm_log_error(&bare);
  plm_log_error(&what);
  plm_log_error(&all);
  plm_error_print("name", &brief);
  plm_log_error(&brief);
  assert_string_equal(captured_end(), "name: in use by another process\n"
                                      "name: it is wrong\n"
                                      "name: file:3: it is wrong\n  remove it\n"
                                      "test: error: in use by another process\n"
                                      "test: error: it is wrong\n"
                                      "test: error: file:3: it is wrong (remove it)\n"
                                      "name: p: w\n  h\n"
                                      "test: error: p: w (h)\n");
}

static void levels_below_the_least_are_not_logged(void **state)
{
  static const struct {
    enum plm_log_level least;
    const char *text;
  } cases[] = {
      {PLM_LOG_DEBUG, "t: debug: d\nt: i\nt: warning: w\nt: error: e\n"},
      {PLM_LOG_INFO, "t: i\nt: warning: w\nt: error: e\n"},
      {PLM_LOG_WARNING, "t: warning: w\nt: error: e\n"},
      {PLM_LOG_ERROR, "t: error: e\n"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    plm_log_init("t", cases[i].least);
    assert_int_equal(plm_log_least(), cases[i].least);
    captured_begin(STDERR_FILENO);
    plm_log(PLM_LOG_DEBUG, "d");
    plm_log(PLM_LOG_INFO, "i");
    plm_log(PLM_LOG_WARNING, "w");
    plm_log(PLM_LOG_ERROR, "%s", "e");
    assert_string_equal(captured_end(), cases[i].text);
  }
}

static void a_time_is_recognised(void **state)
{
  static const char good[] = "2026-01-31T23:59:07.123Z ";
  (void)state;
  char line[64], now[PLM_LOG_TIME_SIZE];
  assert_int_equal(plm_log_time_length(good), 25);
  assert_int_equal(plm_log_time_length("0000-00-00T00:00:00.000Z x"), 25);
  assert_int_equal(plm_log_time_length("9999-99-99T99:99:99.999Z "), 25);
  plm_log_time_now(now);
  assert_int_equal(strlen(now), 25);
  assert_int_equal(plm_log_time_length(now), 25);
  for (size_t i = 0; i < 25; i++)
    for (const char *other = "/:x"; *other != '\0'; other++) {
      snprintf(line, sizeof line, "%s", good);
      if (line[i] == *other) continue;
      line[i] = *other;
      assert_int_equal(plm_log_time_length(line), 0);
    }
}

static void fail_an_assertion(const void *context)
{
  PLM_ASSERT(context == NULL); /* this one holds */
  plm_assert_failed("a > b", "some/file.c", 42);
}

/* A failed assertion says what failed and where, and ends the process. */
static void an_assertion_says_what_failed(void **state)
{
  (void)state;
  assert_string_equal(aborted(fail_an_assertion, NULL),
                      "some/file.c:42: assertion failed: a > b\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_status_has_a_text_and_exit_codes),
      cmocka_unit_test(an_error_of_the_system_has_a_status),
      cmocka_unit_test(an_error_is_filled_in),
      cmocka_unit_test(an_error_is_printed),
      cmocka_unit_test(levels_below_the_least_are_not_logged),
      cmocka_unit_test(a_time_is_recognised),
      cmocka_unit_test(an_assertion_says_what_failed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
