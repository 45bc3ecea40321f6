/* FAILED in the run folder: why the run ended without being complete. `up` writes it at the end of
 * a run that failed, and removes it when it starts the run again. */
#ifndef PLM_COMMON_RUN_RUN_FAILURE_H
#define PLM_COMMON_RUN_RUN_FAILURE_H

#include <stdbool.h>

#include "common/base/status.h"

#define PLM_RUN_FAILED "FAILED"

struct plm_run_failure {
  double time_s;    /* since 1970, when the stage failed for good */
  int exit_code;    /* of `up` */
  char stage[64];   /* "trainer.0" */
  char cause[1600]; /* "exited with 5, …: 20 steps in a row were skipped …" */
};

plm_status plm_run_failure_write(const char *run, const struct plm_run_failure *failure,
                                 struct plm_error *error);
/* false if the run has not failed, or if the file cannot be read. */
bool plm_run_failure_read(const char *run, struct plm_run_failure *failure);
void plm_run_failure_remove(const char *run);

/* For people: the local time of a failure, "2026-11-25 18:40:02". */
enum { PLM_FAILURE_TIME_SIZE = 32 };
void plm_run_failure_time(double time_s, char text[PLM_FAILURE_TIME_SIZE]);

#endif
