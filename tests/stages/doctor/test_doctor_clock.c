/* What `doctor` says of this host's clock, whatever the clock is. */
#include <string.h>
#include <sys/timex.h>

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
    plm_doctor_host(&doctor);
    const struct plm_finding *clock = NULL;
    for (size_t k = 0; k < doctor.count; k++)
      if (strcmp(doctor.findings[k].check, "clock") == 0) clock = &doctor.findings[k];
    assert_non_null(clock);
    assert_int_equal(clock->grade, PLM_GRADE_OK);
    assert_string_equal(clock->found + sizeof "2026-01-01 00:00:00" - 1, rows[i].ending);
  }
  plm_config_deinit(&config);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_is_synchronised_or_not)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
