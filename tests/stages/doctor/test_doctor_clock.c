/* What `doctor` says of this host's clock, whatever the clock is, and of each port. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

/* Any of the three may be taken. */
static void each_port_is_tried(void **state)
{
  static const char *const keys[] = {"feed", "evaluation_feed", "announcements"};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  (void)state;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
  for (size_t i = 0; i < 3; i++) {
    struct plm_config config;
    struct plm_error error = {0};
    char yaml[400], found[100], port[16];
    size_t used = (size_t)snprintf(yaml, sizeof yaml, "run: /nowhere/run\nnetwork: {");
    for (size_t k = 0; k < 3; k++) {
      snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
      used += (size_t)snprintf(yaml + used, sizeof yaml - used, "%s: 'tcp://127.0.0.1:%s'%s",
                               keys[k], k == i ? port : "*", k < 2 ? ", " : "}\n");
    }
    if (plm_config_load_text(yaml, used, &config, &error) != PLM_OK) fail_msg("%s", error.what);
    doctor = (struct plm_doctor){.config = &config, .program_directory = "/nowhere"};
    plm_doctor_host(&doctor);
    size_t ports = 0;
    snprintf(found, sizeof found, "network.%s: tcp://127.0.0.1:%s is in use by ", keys[i], port);
    for (size_t k = 0; k < doctor.count; k++) {
      if (strcmp(doctor.findings[k].check, "ports") != 0) continue;
      ports++;
      assert_int_equal(strncmp(doctor.findings[k].found, found, strlen(found)), 0);
      assert_int_equal(doctor.findings[k].grade, PLM_GRADE_PROBLEM);
    }
    assert_int_equal(ports, 1);
    plm_config_deinit(&config);
  }
  close(listener);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_is_synchronised_or_not),
                                     cmocka_unit_test(a_clock_may_be_wrong),
                                     cmocka_unit_test(each_port_is_tried)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
