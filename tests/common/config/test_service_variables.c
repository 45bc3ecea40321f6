/* Which variables are those that Kubernetes sets for a Service, by name and value. */
#include "tests/support/harness/cmocka_all.h"

#include "common/config/service_variables.h"

static void each_form_is_known(void **state)
{
  (void)state;
  static const struct {
    const char *name, *value;
    bool service;
  } rows[] = {
      {"PLM_TRAINER_SERVICE_HOST", "10.0.3.4", true},
      {"PLM_TRAINER_SERVICE_HOST", "fd00::12", true},
      {"PLM_TRAINER_SERVICE_HOST", "node7", false},
      {"PLM_TRAINER_SERVICE_PORT", "5701", true},
      {"PLM_TRAINER_SERVICE_PORT_FEED", "5701", true},
      {"PLM_TRAINER_SERVICE_PORT", "tcp", false},
      {"PLM_TRAINER_PORT", "tcp://10.0.3.4:5701", true},
      {"PLM_TRAINER_PORT", "udp://10.0.3.4:5701", true},
      {"PLM_TRAINER_PORT", "5701", false},
      {"PLM_TRAINER_PORTS", "tcp://10.0.3.4:5701", false},
      {"PLM_TRAINER_PORT_5701_TCP", "tcp://10.0.3.4:5701", true},
      {"PLM_TRAINER_PORT_5701_SCTP", "sctp://10.0.3.4:5701", true},
      {"PLM_TRAINER_PORT_A_TCP", "tcp://10.0.3.4:5701", false},
      {"PLM_TRAINER_PORT_5701_TCP_PROTO", "tcp", true},
      {"PLM_TRAINER_PORT_5701_TCP_PROTO", "http", false},
      {"PLM_TRAINER_PORT_5701_UDP_PORT", "5701", true},
      {"PLM_TRAINER_PORT_5701_TCP_PORT", "x", false},
      {"PLM_TRAINER_PORT_5701_TCP_ADDR", "10.0.3.4", true},
      {"PLM_TRAINER_PORT_5701_TCP_ADDR", "a b", false},
      {"PLM_TRAINER_STEPS", "100", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (plm_is_service_variable(rows[i].name, rows[i].value) != rows[i].service)
      fail_msg("%s=%s", rows[i].name, rows[i].value);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_form_is_known)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
