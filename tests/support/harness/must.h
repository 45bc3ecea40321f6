/* Ends a test or benchmark if an allocation or a call fails. */
#ifndef PLM_TESTS_SUPPORT_HARNESS_MUST_H
#define PLM_TESTS_SUPPORT_HARNESS_MUST_H

#include <stdlib.h>

#include "common/base/log/log.h"
#include "common/base/status.h"

static inline void *must(void *memory)
{
  PLM_ASSERT(memory != NULL);
  return memory;
}

static inline void must_work(plm_status status, const struct plm_error *error)
{
  if (status == PLM_OK) return;
  plm_error_print("tests", error);
  exit(1);
}

#endif
