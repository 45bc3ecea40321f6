/* Ends a test or benchmark if an allocation fails. */
#ifndef PLM_TESTS_SUPPORT_MUST_H
#define PLM_TESTS_SUPPORT_MUST_H

#include <stddef.h>

#include "common/base/status.h"

static inline void *must(void *memory)
{
  PLM_ASSERT(memory != NULL);
  return memory;
}

#endif
