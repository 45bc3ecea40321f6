/* cmocka needs these headers before its own. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_CMOCKA_ALL_H
#define PLM_TESTS_SUPPORT_HARNESS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/harness/cmocka_runner.h"

#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown) \
  cmocka_run_group_tests_name(#tests, tests, setup, teardown)
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
  test_run_group(name, tests, sizeof(tests) / sizeof *(tests), setup, teardown)

#undef skip
#define skip(reason) test_skip(reason, __FILE__, __LINE__)

#endif
