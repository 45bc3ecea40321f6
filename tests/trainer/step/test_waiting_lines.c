/* How many lines of metrics wait in memory for a disk that takes none. */
#include "trainer/step/step_report.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

/* One more than the limit ends the run, which says why. */
static void lines_do_not_wait_for_ever(void **state)
{
  enum { MOST = 10000 };
  (void)state;
  struct plm_step_report *report;
  const char *run = scratch_path("full");
  const struct plm_step_result result = {.slowest_rank = -1};
  const struct plm_step_line line = {.step = 1, .result = &result};
  struct plm_error error = {0};
  struct rlimit limit, none;
  assert_int_equal(plm_directory_make(run, NULL), PLM_OK);
  assert_int_equal(plm_step_report_open(run, false, 0, -1, 100, &report, NULL), PLM_OK);
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  none = limit;
  none.rlim_cur = 0;
  captured_begin(STDERR_FILENO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
  int waiting = 0;
  plm_status status = PLM_OK;
  for (; status == PLM_OK && waiting <= MOST; waiting++)
    status = plm_step_report_write(report, &line, &error);
  const plm_status again = plm_step_report_write(report, &line, NULL);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  plm_step_report_close(report);
  (void)captured_end();
  assert_int_equal(waiting, MOST + 1);
  assert_true(status != PLM_OK && again == status && error.status == status);
  assert_non_null(strstr(error.what, "File too large"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(lines_do_not_wait_for_ever)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
