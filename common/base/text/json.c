/* Reading members of JSON objects, the memory of cJSON, and printing. */
#include "common/base/text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/alloc.h"
#include "common/base/text/printable.h"
#include "common/base/text/strict_json.h"

/* What is parsed comes from files and peers, so its size is not ours. */
static _Thread_local bool parsing, lacked;

static void *json_allocate(size_t size)
{
  if (!parsing) return plm_alloc(size);
  void *block = malloc(size);
  lacked |= block == NULL;
  return block;
}

__attribute__((constructor)) static void json_watch(void)
{
  cJSON_Hooks hooks = {.malloc_fn = json_allocate, .free_fn = free};
  cJSON_InitHooks(&hooks);
}

cJSON *plm_json_parse_bytes(const char *text, size_t size, const char **end, bool *no_memory)
{
  parsing = true;
  lacked = false;
  cJSON *parsed = cJSON_ParseWithLengthOpts(text, size, end, false);
  parsing = false;
  *no_memory = lacked;
  return parsed;
}

void plm_json_number_text(double value, char text[PLM_JSON_NUMBER_SIZE])
{
  (void)snprintf(text, PLM_JSON_NUMBER_SIZE, "%.15g", value);
  if (strtod(text, NULL) != value) (void)snprintf(text, PLM_JSON_NUMBER_SIZE, "%.17g", value);
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

uint64_t plm_json_whole(const cJSON *object, const char *name, uint64_t most, uint64_t otherwise)
{
  uint64_t value;
  const bool whole = plm_json_count(cJSON_GetObjectItemCaseSensitive(object, name), &value);
  return whole && value <= most ? value : otherwise;
}

const char *plm_json_string(const cJSON *object, const char *name, const char *otherwise)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  return cJSON_IsString(item) ? item->valuestring : otherwise;
}

char *plm_json_bytes(const cJSON *json, bool indented)
{
  return indented ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
}

char *plm_json_text(const cJSON *json, bool indented)
{
  struct plm_text text = {0};
  char *printed = plm_json_bytes(json, indented);
  plm_text_put_json(&text, printed, strlen(printed));
  free(printed);
  return text.data;
}

void plm_json_put_string(struct plm_text *text, const char *bytes, size_t size)
{
  struct plm_text copy = {0};
  plm_text_append(&copy, bytes, size);
  cJSON *json = cJSON_CreateString(copy.data == NULL ? "" : copy.data);
  char *printed = plm_json_text(json, false);
  plm_text_puts(text, printed);
  free(printed);
  cJSON_Delete(json);
  plm_text_deinit(&copy);
}

plm_status plm_json_print(cJSON *json, struct plm_error *error)
{
  char *text = plm_json_text(json, false);
  (void)error;
  cJSON_Delete(json);
  puts(text);
  free(text);
  return PLM_OK;
}
