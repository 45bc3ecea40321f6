/* When a stage that died is started again: 1 s doubling to 60 s with jitter; five deaths in ten
 * minutes are FATAL. A pure function of the deaths' times. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_BACKOFF_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

enum {
  PLM_BACKOFF_FIRST_MS = 1000,
  PLM_BACKOFF_MOST_MS = 60000,
  PLM_BACKOFF_DEATHS = 5,
  PLM_BACKOFF_WINDOW_MS = 600000,
};

struct plm_backoff {                     /* {0}: nobody died yet */
  int64_t deaths_ms[PLM_BACKOFF_DEATHS]; /* a ring of the last ones */
  uint32_t count;                        /* of all */
  uint32_t in_a_row;                     /* doublings so far; forgotten after a window's quiet */
};

/* A death at now_ms (monotonic). false: the fifth within the window. Otherwise *delay_ms until the
 * next start: the doubled time less up to a quarter of it, by jitter in [0, 1). */
bool plm_backoff_death(struct plm_backoff *backoff, int64_t now_ms, double jitter,
                       int64_t *delay_ms);

#endif
