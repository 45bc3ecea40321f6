/* Reads and writes DONE, and says what it means under a configuration. */
#include "common/run/done.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"

enum { DONE_LIMIT = 1 << 16, DONE_TEXT = 256 };

static const char stop_when_name[] = "stop_when";

plm_status plm_done_write(const char *run, const struct plm_done *done, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], hex[PLM_HASH_HEX_SIZE], reason[96] = "", text[DONE_TEXT];
  PLM_TRY(plm_path_join(path, run, PLM_RUN_DONE, error));
  plm_hash_to_hex(done->identity, hex);
  if (done->patience > 0)
    snprintf(reason, sizeof reason,
             ",\"stopped_by\":\"%s\",\"metric\":\"%s\",\"patience\":%" PRIu32, stop_when_name,
             done->metric, done->patience);
  const int size = snprintf(text, sizeof text, "{\"step\":%" PRIu64 ",\"identity\":\"%s\"%s}\n",
                            done->step, hex, reason);
  return plm_file_replace(path, text, (size_t)size, 0644, error);
}

/* A reason that this program does not know counts as none. */
static void read_reason(const cJSON *json, struct plm_done *done)
{
  const cJSON *by = cJSON_GetObjectItemCaseSensitive(json, "stopped_by");
  const cJSON *metric = cJSON_GetObjectItemCaseSensitive(json, "metric");
  const cJSON *patience = cJSON_GetObjectItemCaseSensitive(json, "patience");
  if (!cJSON_IsString(by) || strcmp(by->valuestring, stop_when_name) != 0 ||
      !cJSON_IsString(metric) || !cJSON_IsNumber(patience) || patience->valuedouble < 1 ||
      patience->valuedouble > UINT32_MAX)
    return;
  const size_t length = strspn(metric->valuestring, "abcdefghijklmnopqrstuvwxyz0123456789_");
  if (metric->valuestring[length] != '\0' || length >= sizeof done->metric) return;
  snprintf(done->metric, sizeof done->metric, "%s", metric->valuestring);
  done->patience = (uint32_t)patience->valuedouble;
}

static plm_status read_done(const char *path, const cJSON *json, struct plm_done *done,
                            struct plm_error *error)
{
  uint64_t step;
  const cJSON *hex = cJSON_GetObjectItemCaseSensitive(json, "identity");
  if (!cJSON_IsObject(json))
    return plm_error_set(error, PLM_FORMAT, "%s is not a JSON object", path);
  if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(json, "step"), &step) ||
      !cJSON_IsString(hex))
    return plm_error_set(error, PLM_FORMAT, "%s lacks step or identity", path);
  *done = (struct plm_done){.step = step};
  read_reason(json, done);
  return plm_hash_from_hex(hex->valuestring, &done->identity, error);
}

plm_status plm_done_read(const char *run, struct plm_done *done, struct plm_error *error)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  PLM_TRY(plm_path_join(path, run, PLM_RUN_DONE, error));
  PLM_TRY(plm_file_read(path, DONE_LIMIT, &text, &size, error));
  cJSON *json = plm_json_line(text);
  free(text);
  if (json == NULL && plm_json_no_memory())
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for %s", path);
  const plm_status status = read_done(path, json, done, error);
  cJSON_Delete(json);
  return status;
}

bool plm_done_holds(const struct plm_done *done, uint64_t steps, const char *metric,
                    uint32_t patience, char why[PLM_DONE_WHY_SIZE])
{
  why[0] = '\0';
  if (done->step >= steps) return true;
  if (done->patience == 0)
    snprintf(why, PLM_DONE_WHY_SIZE, "trainer.steps was raised to %" PRIu64, steps);
  else if (patience == 0)
    snprintf(why, PLM_DONE_WHY_SIZE, "trainer.stop_when.patience is 0 now");
  else if (strcmp(metric, done->metric) != 0)
    snprintf(why, PLM_DONE_WHY_SIZE, "trainer.stop_when.metric was changed from %s to %s",
             done->metric, metric);
  else if (patience > done->patience)
    snprintf(why, PLM_DONE_WHY_SIZE,
             "trainer.stop_when.patience was raised from %" PRIu32 " to %" PRIu32, done->patience,
             patience);
  return why[0] == '\0';
}
