/* The state table and the back-off. */
#include "stages/supervisor/stage/supervisor_state.h"

#include "common/base/status.h"

/* clang-format off */
#define S(name) PLM_STAGE_##name
static const enum plm_stage_state table[PLM_STAGE_STATE_COUNT][PLM_STAGE_EVENT_COUNT] = {
    /*                START        READY        STOP         ENDED        DIED         DIED_OUT */
    [S(IDLE)]     = {S(STARTING), S(IDLE),     S(STOPPED),  S(IDLE),     S(IDLE),     S(IDLE)},
    [S(STARTING)] = {S(STARTING), S(READY),    S(STOPPING), S(DONE),     S(BACKOFF),  S(FATAL)},
    [S(READY)]    = {S(READY),    S(READY),    S(STOPPING), S(DONE),     S(BACKOFF),  S(FATAL)},
    [S(BACKOFF)]  = {S(STARTING), S(BACKOFF),  S(STOPPED),  S(BACKOFF),  S(BACKOFF),  S(FATAL)},
    [S(STOPPING)] = {S(STOPPING), S(STOPPING), S(STOPPING), S(STOPPED),  S(STOPPED),  S(STOPPED)},
    [S(STOPPED)]  = {S(STARTING), S(STOPPED),  S(STOPPED),  S(STOPPED),  S(STOPPED),  S(STOPPED)},
    [S(DONE)]     = {S(STARTING), S(DONE),     S(DONE),     S(DONE),     S(DONE),     S(DONE)},
    [S(FATAL)]    = {S(STARTING), S(FATAL),    S(FATAL),    S(FATAL),    S(FATAL),    S(FATAL)},
};
#undef S
/* clang-format on */

enum plm_stage_state plm_stage_next(enum plm_stage_state state, enum plm_stage_event event)
{
  PLM_ASSERT((unsigned)state < PLM_STAGE_STATE_COUNT && (unsigned)event < PLM_STAGE_EVENT_COUNT);
  return table[state][event];
}

const char *plm_stage_state_name(enum plm_stage_state state)
{
  static const char *const names[] = {
#define PLM_STAGE_STATE_TEXT(name, text) text,
      PLM_STAGE_STATES(PLM_STAGE_STATE_TEXT)
#undef PLM_STAGE_STATE_TEXT
  };
  return names[state];
}

bool plm_stage_lives(enum plm_stage_state state)
{
  return state == PLM_STAGE_STARTING || state == PLM_STAGE_READY || state == PLM_STAGE_STOPPING;
}

int64_t plm_backoff_delay(uint32_t in_a_row, double jitter)
{
  int64_t delay = PLM_BACKOFF_FIRST_MS;
  for (uint32_t i = 0; i < in_a_row && delay < PLM_BACKOFF_MOST_MS; i++) delay *= 2;
  if (delay > PLM_BACKOFF_MOST_MS) delay = PLM_BACKOFF_MOST_MS;
  return delay - (int64_t)(0.25 * jitter * (double)delay);
}

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
  /* the slot after this one now holds the oldest of the last five */
  const int64_t oldest = backoff->deaths_ms[backoff->count % PLM_BACKOFF_DEATHS];
  if (backoff->count >= PLM_BACKOFF_DEATHS && now_ms - oldest <= PLM_BACKOFF_WINDOW_MS) {
    return false;
  }
  *delay_ms = plm_backoff_delay(backoff->in_a_row++, jitter);
  return true;
}
