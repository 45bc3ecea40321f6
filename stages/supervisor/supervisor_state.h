/* The states of a supervised stage, as one table: state and event give the next state. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_STATE_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_STATE_H

#include <stdbool.h>

/* name, what `ps` shows */
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
  PLM_EVENT_START,    /* a process was made */
  PLM_EVENT_READY,    /* it wrote its line */
  PLM_EVENT_STOP,     /* it was told to stop, or shall not be started */
  PLM_EVENT_ENDED,    /* nothing of it is left, as it should be */
  PLM_EVENT_DIED,     /* nothing of it is left, and it is to be started again later */
  PLM_EVENT_DIED_OUT, /* nothing of it is left, and it is not to be started again */
  PLM_STAGE_EVENT_COUNT
};

/* The next state. An event that means nothing in a state leaves it (a READY that arrives while
 * stopping). */
enum plm_stage_state plm_stage_next(enum plm_stage_state state, enum plm_stage_event event);
const char *plm_stage_state_name(enum plm_stage_state state);
/* A process may live in it. */
bool plm_stage_lives(enum plm_stage_state state);

#endif
