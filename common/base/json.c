/* Reading members of JSON objects, and printing one to stdout. */
#include "common/base/json.h"

#include <stdio.h>

#include <cjson/cJSON.h>

double plm_json_number(const cJSON *object, const char *name, double otherwise)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

const char *plm_json_string(const cJSON *object, const char *name, const char *otherwise)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsString(item) ? item->valuestring : otherwise;
}

plm_status plm_json_print(cJSON *json, struct plm_error *error)
{
  char *text = cJSON_PrintUnformatted(json);
  cJSON_Delete(json);
  if (text == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  puts(text);
  cJSON_free(text);
  return PLM_OK;
}
