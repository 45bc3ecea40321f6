/* `make test` repeats with fewer samples what `make test-all` and `make check` try with all: the
 * runner sets PLM_TEST_FEWER for it. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_FEWER_H
#define PLM_TESTS_SUPPORT_HARNESS_FEWER_H

#include <stdint.h>
#include <stdlib.h>

static inline uint32_t fewer_of(uint32_t all, uint32_t fewer)
{
  return getenv("PLM_TEST_FEWER") != NULL ? fewer : all;
}

#endif
