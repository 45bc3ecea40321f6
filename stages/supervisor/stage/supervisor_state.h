/* The life of a supervised stage, as pure functions: a table in which state and event give the next
 * state, and when a stage that died is started again. */
#ifndef PLM_STAGES_SUPERVISOR_STAGE_SUPERVISOR_STATE_H
#define PLM_STAGES_SUPERVISOR_STAGE_SUPERVISOR_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* name, and what `ps` shows */
#define PLM_STAGE_STATES(X) \
  X(IDLE, "idle")           \
  X(STARTING, "starting")   \
  X(READY, "ready")         \
  X(BACKOFF, "back-off")    \
  X(STOPPING, "stopping")   \
  X(STOPPED, "stopped")     \
  X(DONE, "done")           \
  X(FATAL, "fatal")

enum plm_stage_state {
#define PLM_STAGE_STATE_ENUM(name, text) PLM_STAGE_##name,
  PLM_STAGE_STATES(PLM_STAGE_STATE_ENUM)
#undef PLM_STAGE_STATE_ENUM
      PLM_STAGE_STATE_COUNT
};

enum plm_stage_event {
  PLM_EVENT_START,    /* its process was started */
  PLM_EVENT_READY,    /* it reported that it is ready */
  PLM_EVENT_STOP,     /* it was told to stop, or is not to be started */
  PLM_EVENT_ENDED,    /* all its processes are gone, as intended */
  PLM_EVENT_DIED,     /* all its processes are gone; it is to be started again later */
  PLM_EVENT_DIED_OUT, /* all its processes are gone; it is not to be started again */
  PLM_STAGE_EVENT_COUNT
};

/* The next state. An event that has no meaning in a state does not change it, for example a READY
 * that arrives while the stage is stopping. */
enum plm_stage_state plm_stage_next(enum plm_stage_state state, enum plm_stage_event event);
const char *plm_stage_state_name(enum plm_stage_state state);
/* Whether the stage may have a living process in this state. */
bool plm_stage_lives(enum plm_stage_state state);

/* ---- back-off: 1 s, doubling to 60 s, with jitter; five deaths within ten minutes are FATAL
 * ------ */

enum {
  PLM_BACKOFF_FIRST_MS = 1000,
  PLM_BACKOFF_MOST_MS = 60000,
  PLM_BACKOFF_DEATHS = 5,
  PLM_BACKOFF_WINDOW_MS = 600000,
};

struct plm_backoff {                     /* {0}: no death yet */
  int64_t deaths_ms[PLM_BACKOFF_DEATHS]; /* a ring of the times of the last deaths */
  uint32_t count;                        /* of all deaths */
  uint32_t in_a_row;                     /* doublings so far; 0 again after a quiet window */
};

/* The time before the next start after so many starts in a row: 1 s, doubled for each up to 60 s,
 * and shortened by up to a quarter of it, in proportion to jitter in [0, 1). */
int64_t plm_backoff_delay(uint32_t in_a_row, double jitter);

/* Records a death at now_ms (monotonic). Returns false if it is the fifth within the window.
 * Otherwise *delay_ms is the time until the next start. */
bool plm_backoff_death(struct plm_backoff *backoff, int64_t now_ms, double jitter,
                       int64_t *delay_ms);

#endif
