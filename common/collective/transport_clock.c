/* The clock of a transport. */
#include "common/collective/transport_clock.h"

#include "common/base/clock.h"

void plm_transport_clock_mark(struct plm_transport_clock *clock, enum plm_compute_mark mark)
{
  const uint64_t now_ns = plm_clock_ns();
  if (mark == PLM_COMPUTE_BEGINS) *clock = (struct plm_transport_clock){.begun_ns = now_ns};
  if (mark == PLM_COMPUTE_PAUSES) clock->paused_ns = now_ns;
  if (mark == PLM_COMPUTE_RESUMES) clock->pauses_ns += now_ns - clock->paused_ns;
}

double plm_transport_clock_computed(const struct plm_transport_clock *clock)
{
  return 1e-9 * (double)(plm_clock_ns() - clock->begun_ns - clock->pauses_ns);
}
