/* Linked into every test program, so that one test can be run, or debugged, without the others:
 * only tests whose names match PLM_TEST_FILTER, a pattern of cmocka's (* and ?), are run. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"

__attribute__((constructor)) static void filter_tests(void)
{
  const char *pattern = getenv("PLM_TEST_FILTER");
  if (pattern != NULL) cmocka_set_test_filter(pattern);
}
