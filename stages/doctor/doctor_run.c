/* Checks of the run itself: what `ps` knows of a live one, and why the last start failed. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/run/run.h"
#include "common/run/run_failure.h"
#include "stages/doctor/doctor.h"
#include "stages/supervisor/control/ps_rows.h"

/* How to continue what is not as it should be. */
static void doctor_run_advise(struct plm_doctor *doctor, const char *name, const char *activity)
{
  if (strncmp(activity, "waiting for the writer", 22) == 0)
    plm_doctor_fix(doctor, "see whether the disk of the run folder is slow or hangs");
  else if (strncmp(activity, "waiting", 7) == 0)
    plm_doctor_fix(doctor, "see `plm-pipeline logs packer`, or start more with `plm-pipeline scale "
                           "packer=N` or `plm-pipeline join`");
  else if (strncmp(activity, "stopped", 7) == 0)
    plm_doctor_fix(doctor,
                   "continue it with `kill -CONT PID`, or restart it: plm-pipeline restart "
                   "%s",
                   name);
  else
    plm_doctor_fix(doctor,
                   "see `plm-pipeline logs %s`; if nothing moves, restart it: plm-pipeline "
                   "restart %s",
                   name, name);
}

static void examine_row(struct plm_doctor *doctor, const cJSON *row)
{
  char name[96];
  const char *state = plm_json_string(row, "state", ""),
             *activity = plm_json_string(row, "activity", ""),
             *cause = plm_json_string(row, "cause", "its log says why");
  snprintf(name, sizeof name, "%.64s.%.0f", plm_json_string(row, "stage", ""),
           plm_json_number(row, "instance", 0.0));
  if (strcmp(state, "fatal") == 0) {
    plm_doctor_add(doctor, "run", PLM_GRADE_PROBLEM, "%s has failed for good: %.380s", name, cause);
    plm_doctor_fix(doctor, "remove the cause, then: plm-pipeline restart %s", name);
  } else if (strcmp(state, "back-off") == 0) {
    plm_doctor_add(doctor, "run", PLM_GRADE_WARNING,
                   "%s has failed and will be started again: %.380s", name, cause);
    plm_doctor_fix(doctor, "remove the cause; see `plm-pipeline logs %s`", name);
  } else if (activity[0] != '\0') {
    plm_doctor_add(doctor, "run", PLM_GRADE_WARNING, "%s (process %.0f): %s", name,
                   plm_json_number(row, "pid", 0.0), activity);
    doctor_run_advise(doctor, name, activity);
  }
}

static void examine_last(struct plm_doctor *doctor, const char *run)
{
  static struct plm_run_failure failure; /* static because it is large */
  char time[PLM_FAILURE_TIME_SIZE];
  if (!plm_run_failure_read(run, &failure)) return;
  plm_run_failure_time(failure.time_s, time);
  plm_doctor_add(doctor, "run", PLM_GRADE_WARNING, "the last start failed at %s: %s %.380s", time,
                 failure.stage, failure.cause);
  plm_doctor_fix(doctor, "remove the cause, then: plm-pipeline up %s/%s", run, PLM_RUN_CONFIG);
}

void plm_doctor_run(struct plm_doctor *doctor)
{
  const char *run = doctor->config->run;
  const size_t before = doctor->count;
  cJSON *rows = NULL;
  const cJSON *row;
  struct plm_error error = {0};
  const plm_status status = plm_ps_read(run, &rows, &error);
  if (status == PLM_NOT_RUNNING) {
    examine_last(doctor, run);
    return;
  }
  if (status != PLM_OK) {
    plm_doctor_add(doctor, "run", PLM_GRADE_WARNING, "the supervisor does not answer: %.400s",
                   error.what);
    plm_doctor_fix(doctor, "see whether its process is stopped; it is named in %s/supervisor.lock",
                   run);
    return;
  }
  cJSON_ArrayForEach(row, rows) /* a run has hundreds of packers at most; few are told */
      if (doctor->count < before + 16) examine_row(doctor, row);
  cJSON_Delete(rows);
  if (doctor->count == before)
    plm_doctor_add(doctor, "run", PLM_GRADE_OK, "it is running, and its steps end");
}
