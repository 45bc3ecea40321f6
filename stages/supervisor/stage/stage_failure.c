/* Judges failures by their kind, and by those before them. */
#include "stages/supervisor/stage/stage_failure.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/status.h"

/* Of a shell that cannot start what it was told to, as with --launch. */
enum { CANNOT_RUN = 126, NO_PROGRAM = 127 };

enum plm_failure_kind plm_failure_kind_of(int wait_status)
{
  if (!WIFEXITED(wait_status)) return PLM_FAILURE_UNKNOWN;
  switch (WEXITSTATUS(wait_status)) {
  case PLM_EXIT_NOT_FINITE: return PLM_FAILURE_NOT_FINITE;
  case PLM_EXIT_MAY_PASS: return PLM_FAILURE_PASSES;
  case PLM_EXIT_CONFIG:
  case PLM_EXIT_TIMEOUT:
  case PLM_EXIT_STAYS:
  case CANNOT_RUN:
  case NO_PROGRAM: return PLM_FAILURE_STAYS;
  default: return PLM_FAILURE_UNKNOWN;
  }
}

static enum plm_failure_verdict stage_failure_wait_for(struct plm_failures *failures,
                                                       const struct plm_failure *failure,
                                                       double wait_s, double jitter,
                                                       int64_t *delay_ms)
{
  const bool goes_on = failures->waits && failures->waits_at == failure->mark &&
                       failure->lived_ms < PLM_BACKOFF_WINDOW_MS;
  if (!goes_on) {
    failures->waits = true;
    failures->waits_since_ms = failure->now_ms;
    failures->waits_at = failure->mark;
    failures->attempts = 0;
  }
  const int64_t left_ms = failures->waits_since_ms + (int64_t)(1000.0 * wait_s) - failure->now_ms;
  if (left_ms <= 0) return PLM_VERDICT_TOO_LONG;
  *delay_ms = plm_backoff_delay(failures->attempts++, jitter);
  if (*delay_ms > left_ms) *delay_ms = left_ms; /* one more attempt at the end */
  return PLM_VERDICT_WAITS;
}

static bool is_repeated(const struct plm_failures *failures, const struct plm_failure *failure)
{
  if (!failures->remembered || failures->kind != failure->kind ||
      failures->at_step != failure->at_step || failures->step != failure->step)
    return false;
  if (failure->kind == PLM_FAILURE_NOT_FINITE) return true;
  return failure->at_step && failure->text[0] != '\0' &&
         strncmp(failures->text, failure->text, sizeof failures->text - 1) == 0;
}

static void stage_failure_remember(struct plm_failures *failures, const struct plm_failure *failure)
{
  failures->remembered = true;
  failures->kind = failure->kind;
  failures->at_step = failure->at_step;
  failures->step = failure->step;
  snprintf(failures->text, sizeof failures->text, "%s", failure->text);
}

enum plm_failure_verdict plm_failures_add(struct plm_failures *failures,
                                          const struct plm_failure *failure, double wait_s,
                                          double jitter, int64_t *delay_ms)
{
  if (failure->kind == PLM_FAILURE_STAYS) return PLM_VERDICT_STAYS;
  if (failure->kind == PLM_FAILURE_PASSES)
    return stage_failure_wait_for(failures, failure, wait_s, jitter, delay_ms);
  failures->waits = false;
  if (is_repeated(failures, failure)) return PLM_VERDICT_REPEATED;
  stage_failure_remember(failures, failure);
  return plm_backoff_death(&failures->deaths, failure->now_ms, jitter, delay_ms)
             ? PLM_VERDICT_AGAIN
             : PLM_VERDICT_TOO_OFTEN;
}
