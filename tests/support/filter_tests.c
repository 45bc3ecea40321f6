/* Linked into every test program: PLM_TEST_FILTER chooses which of its tests run, by cmocka's
 * pattern (* and ?), so that one test can be run, or debugged, without the others. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"

__attribute__((constructor)) static void filter_tests(void)
{
  const char *pattern = getenv("PLM_TEST_FILTER");
  if (pattern != NULL) cmocka_set_test_filter(pattern);
}
