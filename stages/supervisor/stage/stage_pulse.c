/* Remembers when the mark last changed. */
#include "stages/supervisor/stage/stage_pulse.h"

bool plm_pulse_is_lost(struct plm_pulse *pulse, int64_t now_ms, uint64_t mark, int64_t limit_ms)
{
  if (!pulse->begun || mark != pulse->mark)
    *pulse = (struct plm_pulse){.begun = true, .since_ms = now_ms, .mark = mark};
  return limit_ms > 0 && now_ms - pulse->since_ms >= limit_ms;
}
