/* The history in trainer.json. */
#include "evaluator/watch/unpublished.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "common/base/json.h"

enum { STATE_LIMIT = 1 << 26 };

bool plm_unpublished(const char *later_checkpoint, uint64_t step, char *why, size_t size)
{
  char path[PLM_PATH_SIZE], *text;
  size_t length;
  bool found = false;
  if (plm_path_join(path, later_checkpoint, "trainer.json", NULL) != PLM_OK ||
      plm_file_read(path, STATE_LIMIT, &text, &length, NULL) != PLM_OK)
    return false;
  cJSON *json = cJSON_ParseWithLength(text, length);
  const cJSON *entry;
  cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(json, "history"))
  {
    const cJSON *failed = cJSON_GetObjectItemCaseSensitive(entry, "failed");
    if (!cJSON_IsString(failed) || plm_json_number(entry, "step", -1.0) != (double)step) continue;
    snprintf(why, size, "%s", failed->valuestring);
    found = true;
  }
  cJSON_Delete(json);
  free(text);
  return found;
}
