/* What a failure of a stage means: whether the stage is started again, and when. The exit code says
 * what kind of failure it is (PLM_STATUS_LIST); the words of a message never do. All functions are
 * pure. */
#ifndef PLM_STAGES_SUPERVISOR_STAGE_STAGE_FAILURE_H
#define PLM_STAGES_SUPERVISOR_STAGE_STAGE_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

#include "stages/supervisor/stage/supervisor_state.h"

enum plm_failure_kind {
  PLM_FAILURE_UNKNOWN,    /* 1 and all others, and a death by a signal: tried again a few times */
  PLM_FAILURE_PASSES,     /* 6: waited for */
  PLM_FAILURE_STAYS,      /* 2, 4, 7: the stage would fail again */
  PLM_FAILURE_NOT_FINITE, /* 5: tried again once */
};
/* wait_status: from waitpid, of a stage that did not end with 0. */
enum plm_failure_kind plm_failure_kind_of(int wait_status);

enum { PLM_FAILURE_TEXT = 1024 };

struct plm_failure {
  enum plm_failure_kind kind;
  int64_t now_ms;   /* monotonic */
  int64_t lived_ms; /* how long the process worked; 0 if `mark` tells its progress */
  uint64_t mark;    /* changes when there is progress, for example the newest checkpoint */
  bool at_step;     /* the process had finished steps; the last one is `step` */
  uint64_t step;
  const char *text; /* the error as the stage printed it; "" if it printed none */
};

/* Of one stage; {0}: none yet. */
struct plm_failures {
  struct plm_backoff deaths; /* of those that do not pass */
  bool waits;                /* for a cause that may pass */
  int64_t waits_since_ms;
  uint64_t waits_at; /* the mark then */
  uint32_t attempts; /* since then */
  bool remembered;   /* the last failure, unless that may pass: */
  enum plm_failure_kind kind;
  bool at_step;
  uint64_t step;
  char text[PLM_FAILURE_TEXT];
};

enum plm_failure_verdict {
  PLM_VERDICT_AGAIN,     /* it is started again after *delay_ms */
  PLM_VERDICT_WAITS,     /* the same, because the cause may pass */
  PLM_VERDICT_STAYS,     /* permanent: the kind says so */
  PLM_VERDICT_TOO_OFTEN, /* permanent: five failures in ten minutes */
  PLM_VERDICT_TOO_LONG,  /* permanent: the cause has not passed within the limit */
  PLM_VERDICT_REPEATED,  /* permanent: the same failure at the same step, twice */
};

/* Records a failure. A cause that may pass is waited for until wait_s seconds after its first
 * failure, unless there was progress or ten minutes of work since; it does not count as a death,
 * and is not compared with others. Others are compared: values that are not finite, or an error
 * with the same text, at the same step as the failure before. jitter as in plm_backoff_death. */
enum plm_failure_verdict plm_failures_add(struct plm_failures *failures,
                                          const struct plm_failure *failure, double wait_s,
                                          double jitter, int64_t *delay_ms);

#endif
