/* Each way to write HOST:PORT, and the address that it stands for. */
#include "tests/support/harness/cmocka_all.h"

#include <string.h>

#include "common/base/process/host_address.h"

static void each_way_has_its_address(void **state)
{
  (void)state;
  static const struct {
    const char *address, *numeric;
  } rows[] = {
      {"127.0.0.1:5", "127.0.0.1:5"},
      {"0.0.0.0:*", "0.0.0.0:*"},
      {"*:*", "*:*"},
      {":9464", "*:9464"},
      {"[::1]:0", "[::1]:0"},
      {"[::]:*", "[::]:*"},
      {"localhost:5701", "127.0.0.1:5701"},
      {"lo:*", "127.0.0.1:*"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char numeric[PLM_HOST_ADDRESS_SIZE];
    struct plm_error error = {0};
    if (plm_host_address(rows[i].address, numeric, &error) != PLM_OK)
      fail_msg("%s: %s", rows[i].address, error.what);
    assert_string_equal(numeric, rows[i].numeric);
  }
}

static void others_are_refused_with_the_reason(void **state)
{
  (void)state;
  static char long_one[PLM_HOST_ADDRESS_SIZE + 1];
  memset(long_one, 'a', PLM_HOST_ADDRESS_SIZE);
  memcpy(long_one + PLM_HOST_ADDRESS_SIZE - 2, ":1", 2);
  const struct {
    const char *address, *says, *hint;
  } rows[] = {
      {"plm-no-such-host.invalid:5",
       "\"plm-no-such-host.invalid\" is not an address or a network "
       "interface of this host, and does not resolve: ",
       "127.0.0.1 (only this host)"},
      {"::1:5701", "\"::1:5701\": an IPv6 address needs brackets", "[::1]:5701"},
      {"localhost", "\"localhost\" is not HOST:PORT", ""},
      {long_one, "is not HOST:PORT", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char numeric[PLM_HOST_ADDRESS_SIZE];
    struct plm_error error = {0};
    assert_int_not_equal(plm_host_address(rows[i].address, numeric, &error), PLM_OK);
    assert_non_null(strstr(error.what, rows[i].says));
    assert_non_null(strstr(error.hint, rows[i].hint));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_way_has_its_address),
      cmocka_unit_test(others_are_refused_with_the_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
