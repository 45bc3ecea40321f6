/* One pass over the values; the name is only written if one is not finite. */
#include "common/inference/finite_output.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/numbers/finite.h"

plm_status plm_finite_output(const float *values, size_t count, struct plm_error *error,
                             const char *format, ...)
{
  char name[300];
  va_list arguments;
  const size_t found = plm_first_not_finite(values, count);
  if (found == count) return PLM_OK;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  plm_error_set(error, PLM_NOT_FINITE, "the model computes %g for %s", (double)values[found], name);
  return plm_error_hint(error,
                        "its weights are finite, but numbers overflow on the way to this value; "
                        "try a checkpoint of an earlier step");
}
