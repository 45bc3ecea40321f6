/* The grace time of a stop signal. */
#include "trainer/grace.h"

#include <math.h>

bool plm_grace_is_short(const struct plm_grace *grace)
{
  const double pace_s = grace->done == 0 ? 0 : grace->step_s * grace->total / grace->done;
  const double expected_s = grace->last_step_s > 0 ? grace->last_step_s : pace_s;
  const double left_s = fmax(0, expected_s - grace->step_s);
  return grace->since_stop_s + left_s + grace->publish_s > grace->limit_s;
}
