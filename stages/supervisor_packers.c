/* The packers of a run as `ps` shows them: what the trainer knows of each (rate, queue), and those
 * that joined from elsewhere. The trainer writes packers.json about once a second. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "common/run/run.h"
#include "stages/supervisor_internal.h"

enum { FILE_LIMIT = 1 << 20, STALE_S = 60 };

static cJSON *read_packers(const char *run)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  struct stat info;
  if (plm_path_join(path, run, PLM_RUN_PACKERS, NULL) != PLM_OK || stat(path, &info) != 0 ||
      time(NULL) - info.st_mtime > STALE_S ||
      plm_file_read(path, FILE_LIMIT, &text, &size, NULL) != PLM_OK) {
    return NULL;
  }
  cJSON *packers = cJSON_Parse(text);
  free(text);
  return packers;
}

static double number(const cJSON *row, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);
  return cJSON_IsNumber(item) ? item->valuedouble : 0.0;
}

static const char *string(const cJSON *row, const char *name)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);
  return cJSON_IsString(item) ? item->valuestring : "";
}

/* The row of a packer of our own, NULL: it joined. */
static cJSON *own_row(cJSON *rows, const cJSON *packer)
{
  cJSON *row;
  cJSON_ArrayForEach(row, rows)
  {
    if (strcmp(string(row, "stage"), "packer") == 0 &&
        number(row, "pid") == number(packer, "pid") &&
        strcmp(string(row, "node"), string(packer, "host")) == 0) {
      return row;
    }
  }
  return NULL;
}

void supervisor_add_packers(const struct plm_supervisor *supervisor, cJSON *rows)
{
  cJSON *packers = read_packers(supervisor->run), *packer;
  unsigned instance = 0;
  for (size_t i = 0; i < supervisor->count; i++) {
    const struct supervised *stage = &supervisor->stages[i];
    if (stage->kind == PLM_KIND_PACKER && stage->instance >= instance) {
      instance = stage->instance + 1;
    }
  }
  cJSON_ArrayForEach(packer, packers)
  {
    cJSON *row = own_row(rows, packer);
    if (row == NULL) {
      row = cJSON_CreateObject();
      cJSON_AddStringToObject(row, "stage", "packer");
      cJSON_AddNumberToObject(row, "instance", instance++);
      cJSON_AddStringToObject(row, "node", string(packer, "host"));
      cJSON_AddNumberToObject(row, "pid", number(packer, "pid"));
      cJSON_AddStringToObject(row, "state", "joined");
      cJSON_AddBoolToObject(row, "ready", true);
      cJSON_AddNumberToObject(row, "restarts", 0);
      cJSON_AddNumberToObject(row, "age_s", number(packer, "age_s"));
      cJSON_AddItemToArray(rows, row);
    }
    cJSON_AddNumberToObject(row, "rate", number(packer, "rate"));
    cJSON_AddNumberToObject(row, "queue", number(packer, "queue"));
    cJSON_AddBoolToObject(row, "standby",
                          cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(packer, "standby")));
  }
  cJSON_Delete(packers);
}
