/* Numbers for people, and the lines and bars of progress, whose clock the test sets. */
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

#include <time.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"

static void counts_have_commas(void **state)
{
  static const struct {
    uint64_t count;
    const char *text;
  } cases[] = {
      {0, "0"},
      {9, "9"},
      {10, "10"},
      {999, "999"},
      {1000, "1,000"},
      {12345, "12,345"},
      {999999, "999,999"},
      {1234567, "1,234,567"},
      {UINT64_MAX, "18,446,744,073,709,551,615"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[32];
    assert_ptr_equal(plm_format_count(cases[i].count, text), text);
    assert_string_equal(text, cases[i].text);
  }
}

static void durations_are_rounded_to_seconds(void **state)
{
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {
      {0, "0:00"},         {0.4, "0:00"},         {0.5, "0:01"},      {9, "0:09"},
      {59.4, "0:59"},      {59.5, "1:00"},        {83, "1:23"},       {3599.4, "59:59"},
      {3599.5, "1:00:00"}, {3600, "1:00:00"},     {14706, "4:05:06"}, {7199, "1:59:59"},
      {86400, "24:00:00"}, {360000, "100:00:00"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[32];
    assert_ptr_equal(plm_format_duration(cases[i].seconds, text), text);
    assert_string_equal(text, cases[i].text);
  }
}

static uint64_t now_ns;

/* Takes the place of libc's function in this program. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
  (void)clock;
  *now = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u),
                           .tv_nsec = (long)(now_ns % 1000000000u)};
  return 0;
}

enum { START_S = 1000 };
static const uint64_t second_ns = 1000000000u;

/* What is shown `seconds` after the beginning. */
static const char *shown(struct plm_progress *progress, double seconds, uint64_t done,
                         uint64_t total, uint64_t rated, uint64_t items)
{
  now_ns = START_S * second_ns + (uint64_t)(seconds * 1e9 + 0.5);
  captured_begin(STDERR_FILENO);
  plm_progress_update(progress, done, total, rated, items, "sequence");
  return captured_end();
}

static struct plm_progress begun(bool terminal)
{
  struct plm_progress progress;
  now_ns = START_S * second_ns;
  plm_progress_begin(&progress, "read");
  assert_false(progress.terminal); /* a test's stderr is none */
  assert_false(progress.drawn);
  assert_int_equal(progress.start_ns, now_ns);
  assert_int_equal(progress.last_ns, now_ns);
  progress.terminal = terminal;
  return progress;
}

static void a_line_comes_every_ten_seconds(void **state)
{
  (void)state;
  struct plm_progress progress = begun(false);
  assert_string_equal(shown(&progress, 9.999999999, 1, 4, 1000000, 1), "");
  assert_string_equal(shown(&progress, 10, 1, 4, 25000000, 1),
                      "test: read 25 %  1 sequence, 2.5 MB/s, 0:30 left\n");
  assert_string_equal(shown(&progress, 19.999999999, 2, 4, 0, 1), "");
  assert_string_equal(shown(&progress, 20, 4, 4, 2000000, 1234),
                      "test: read 100 %  1,234 sequences, 0.1 MB/s, 0:00 left\n");
  assert_string_equal(shown(&progress, 40, 5, 4, 0, 0),
                      "test: read 100 %  0 sequences, 0.0 MB/s, 0:00 left\n");
  assert_string_equal(shown(&progress, 50, 5, 0, 50000000, 2), /* the total is unknown */
                      "test: read  2 sequences, 1.0 MB/s\n");
  captured_begin(STDERR_FILENO);
  plm_progress_clear(&progress);
  assert_string_equal(captured_end(), ""); /* there is no bar */
}

static void work_of_an_earlier_run_is_left_out_of_the_estimate(void **state)
{
  (void)state;
  struct plm_progress progress = begun(false);
  progress.done_before = 10;
  progress.rate_unit = "tokens";
  assert_string_equal(shown(&progress, 10, 10, 40, 12345, 3),
                      "test: read 25 %  3 sequences, 1,234 tokens/s\n");
  assert_string_equal(shown(&progress, 20, 20, 40, 20000, 3),
                      "test: read 50 %  3 sequences, 1,000 tokens/s, 0:40 left\n");
}

static void a_bar_is_drawn_ten_times_a_second(void **state)
{
  (void)state;
  struct plm_progress progress = begun(true);
  assert_string_equal(shown(&progress, 0.099999999, 1, 4, 0, 1), "");
  captured_begin(STDERR_FILENO);
  plm_progress_clear(&progress);
  assert_string_equal(captured_end(), "");
  assert_string_equal(shown(&progress, 0.1, 0, 4, 100000, 1),
                      "\rread [........................]   0 %  1 sequence, 1.0 MB/s\033[K");
  assert_string_equal(
      shown(&progress, 2, 1, 4, 4000000, 2),
      "\rread [######..................]  25 %  2 sequences, 2.0 MB/s, 0:06 left\033[K");
  assert_true(progress.drawn);
  assert_string_equal(
      shown(&progress, 4, 4, 4, 4000000, 2),
      "\rread [########################] 100 %  2 sequences, 1.0 MB/s, 0:00 left\033[K");
  captured_begin(STDERR_FILENO);
  plm_progress_clear(&progress);
  plm_progress_clear(&progress);
  assert_string_equal(captured_end(), "\r\033[K");
  assert_false(progress.drawn);
}

static void a_quiet_program_shows_no_progress(void **state)
{
  (void)state;
  plm_log_init("test", PLM_LOG_WARNING);
  struct plm_progress progress = begun(true);
  assert_true(progress.silent);
  assert_string_equal(shown(&progress, 100, 1, 4, 1, 1), "");
  plm_log_init("test", PLM_LOG_INFO);
  assert_false(begun(true).silent);
  plm_log_init("test", PLM_LOG_DEBUG);
  assert_false(begun(true).silent);
}

static int begin(void **state)
{
  (void)state;
  plm_log_init("test", PLM_LOG_INFO);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_have_commas),
      cmocka_unit_test(durations_are_rounded_to_seconds),
      cmocka_unit_test_setup(a_line_comes_every_ten_seconds, begin),
      cmocka_unit_test_setup(work_of_an_earlier_run_is_left_out_of_the_estimate, begin),
      cmocka_unit_test_setup(a_bar_is_drawn_ten_times_a_second, begin),
      cmocka_unit_test_setup(a_quiet_program_shows_no_progress, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
