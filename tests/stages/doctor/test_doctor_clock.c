/* What `doctor` says of this host's clock, whatever the clock is. */
#include <string.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "stages/doctor/doctor.h"
#include "tests/support/harness/cmocka_all.h"

static struct plm_doctor doctor;
static int clock_state;

/* Takes the place of libc's function in this program. */
int adjtimex(struct timex *about)
{
  assert_int_equal(about->modes, 0); /* it changes nothing */
  return clock_state;
}

static time_t says; /* 0: the true time */

time_t time(time_t *kept)
{
  const time_t now = says != 0 ? says : (time_t)syscall(SYS_time, NULL);
  if (kept != NULL) *kept = now;
  return now;
}

static const struct plm_finding *look(void)
{
  const struct plm_finding *clock = NULL;
  plm_doctor_host(&doctor);
  for (size_t k = 0; k < doctor.count; k++)
    if (strcmp(doctor.findings[k].check, "clock") == 0) clock = &doctor.findings[k];
  assert_non_null(clock);
  return clock;
}

static void a_clock_is_synchronised_or_not(void **state)
{
  static const struct {
    int state;
    const char *ending;
  } rows[] = {{-1, " UTC"},
              {TIME_OK, " UTC, synchronised"},
              {TIME_ERROR, " UTC, not synchronised, which matters only for several hosts"}};
  struct plm_config config;
  (void)state;
  assert_int_equal(plm_config_load_text("", 0, &config, NULL), PLM_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    doctor = (struct plm_doctor){.config = &config, .program_directory = "/nowhere"};
    clock_state = rows[i].state;
    const struct plm_finding *clock = look();
    assert_int_equal(clock->grade, PLM_GRADE_OK);
    assert_string_equal(clock->found + sizeof "2026-01-01 00:00:00" - 1, rows[i].ending);
  }
  plm_config_deinit(&config);
}

/* It cannot be earlier than this program. */
static void a_clock_may_be_wrong(void **state)
{
  enum { MADE = 1735689600 };
  static const struct {
    time_t time;
    enum plm_grade grade;
    const char *found, *fix;
  } rows[] = {{MADE - 1, PLM_GRADE_WARNING, "it says 2024-12-31 23:59:59 UTC",
               "set it: logs and metrics carry its time"},
              {MADE, PLM_GRADE_OK, "2025-01-01 00:00:00 UTC, synchronised", ""}};
  struct plm_config config;
  (void)state;
  assert_int_equal(plm_config_load_text("", 0, &config, NULL), PLM_OK);
  clock_state = TIME_OK;
  for (size_t i = 0; i < 2; i++) {
    doctor = (struct plm_doctor){.config = &config, .program_directory = "/nowhere"};
    says = rows[i].time;
    const struct plm_finding *clock = look();
    says = 0;
    assert_int_equal(clock->grade, rows[i].grade);
    assert_string_equal(clock->found, rows[i].found);
    assert_string_equal(clock->fix, rows[i].fix);
  }
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_is_synchronised_or_not),
                                     cmocka_unit_test(a_clock_may_be_wrong)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
