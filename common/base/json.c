/* Reading members of JSON objects, and printing them only if nothing of them is missing. */
#include "common/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/printable.h"

static _Thread_local bool lacked; /* memory, since this thread printed the last time */

static void *allocate(size_t size)
{
  void *block = malloc(size);
  if (block == NULL) lacked = true;
  return block;
}

__attribute__((constructor)) static void watch(void)
{
  cJSON_Hooks hooks = {.malloc_fn = allocate, .free_fn = free};
  cJSON_InitHooks(&hooks);
}

bool plm_json_exchange_lack(bool lacks)
{
  const bool before = lacked;
  lacked = lacks;
  return before;
}

void plm_json_append(cJSON *array, cJSON *item)
{
  if (!cJSON_AddItemToArray(array, item)) cJSON_Delete(item);
}

void plm_json_put(cJSON *object, const char *name, cJSON *item)
{
  if (!cJSON_AddItemToObject(object, name, item)) cJSON_Delete(item);
}

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

char *plm_json_bytes(const cJSON *json, bool indented)
{
  char *printed = indented ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
  if (!plm_json_exchange_lack(false)) return printed;
  free(printed);
  return NULL;
}

char *plm_json_text(const cJSON *json, bool indented)
{
  struct plm_text text = {0};
  char *printed = plm_json_bytes(json, indented);
  if (printed == NULL) return NULL;
  plm_text_put_json(&text, printed, strlen(printed));
  free(printed);
  if (!text.failed) return text.data;
  plm_text_deinit(&text);
  return NULL;
}

plm_status plm_json_print(cJSON *json, struct plm_error *error)
{
  char *text = plm_json_text(json, false);
  cJSON_Delete(json);
  if (text == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  puts(text);
  free(text);
  return PLM_OK;
}
