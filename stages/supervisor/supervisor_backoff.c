/* Back-off between restarts. */
#include "stages/supervisor/supervisor_backoff.h"

bool plm_backoff_death(struct plm_backoff *backoff, int64_t now_ms, double jitter,
                       int64_t *delay_ms)
{
  const uint32_t slot = backoff->count % PLM_BACKOFF_DEATHS;
  const uint32_t last = (backoff->count + PLM_BACKOFF_DEATHS - 1) % PLM_BACKOFF_DEATHS;
  if (backoff->count > 0 && now_ms - backoff->deaths_ms[last] > PLM_BACKOFF_WINDOW_MS) {
    backoff->in_a_row = 0;
  }
  backoff->deaths_ms[slot] = now_ms;
  backoff->count++;
  /* the oldest of the last five now stands in the slot after this one */
  const int64_t oldest = backoff->deaths_ms[backoff->count % PLM_BACKOFF_DEATHS];
  if (backoff->count >= PLM_BACKOFF_DEATHS && now_ms - oldest <= PLM_BACKOFF_WINDOW_MS) {
    return false;
  }
  int64_t delay = PLM_BACKOFF_FIRST_MS;
  for (uint32_t i = 0; i < backoff->in_a_row && delay < PLM_BACKOFF_MOST_MS; i++) delay *= 2;
  if (delay > PLM_BACKOFF_MOST_MS) delay = PLM_BACKOFF_MOST_MS;
  backoff->in_a_row++;
  *delay_ms = delay - (int64_t)(0.25 * jitter * (double)delay);
  return true;
}
