/* Writes and reads FAILED. */
#include "common/run/run_failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"

enum { LIMIT = 1 << 16 }; /* bytes of the file */

plm_status plm_run_failure_write(const char *run, const struct plm_run_failure *failure,
                                 struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(plm_path_join(path, run, PLM_RUN_FAILED, error));
  cJSON *json = cJSON_CreateObject();
  cJSON_AddNumberToObject(json, "time", failure->time_s);
  cJSON_AddNumberToObject(json, "exit", failure->exit_code);
  cJSON_AddStringToObject(json, "stage", failure->stage);
  cJSON_AddStringToObject(json, "cause", failure->cause);
  char *text = plm_json_text(json, false);
  cJSON_Delete(json);
  const plm_status status = plm_file_replace(path, text, strlen(text), 0644, error);
  free(text);
  return status;
}

bool plm_run_failure_read(const char *run, struct plm_run_failure *failure)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  *failure = (struct plm_run_failure){0};
  if (plm_path_join(path, run, PLM_RUN_FAILED, NULL) != PLM_OK ||
      plm_file_read(path, LIMIT, &text, &size, NULL) != PLM_OK)
    return false;
  cJSON *json = plm_json_line(text);
  free(text);
  failure->time_s = plm_json_number(json, "time", 0.0);
  failure->exit_code = (int)plm_json_whole(json, "exit", 255, 1);
  snprintf(failure->stage, sizeof failure->stage, "%s", plm_json_string(json, "stage", "a stage"));
  snprintf(failure->cause, sizeof failure->cause, "%s", plm_json_string(json, "cause", "failed"));
  const bool found = cJSON_IsObject(json);
  cJSON_Delete(json);
  return found;
}

void plm_run_failure_remove(const char *run)
{
  char path[PLM_PATH_SIZE];
  if (plm_path_join(path, run, PLM_RUN_FAILED, NULL) == PLM_OK) unlink(path);
}

void plm_run_failure_time(double time_s, char text[PLM_FAILURE_TIME_SIZE])
{
  const time_t seconds = (time_t)time_s;
  struct tm local;
  if (localtime_r(&seconds, &local) == NULL ||
      strftime(text, PLM_FAILURE_TIME_SIZE, "%Y-%m-%d %H:%M:%S", &local) == 0)
    snprintf(text, PLM_FAILURE_TIME_SIZE, "an unknown time");
}
