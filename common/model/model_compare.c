/* Compares two models key by key, as config.json holds them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/model/model_config.h"

struct comparison {
  struct plm_model_difference *differences;
  size_t count;
};

static void print_value(const cJSON *value, char text[PLM_MODEL_VALUE_SIZE])
{
  char *printed = plm_json_bytes(value, false);
  snprintf(text, PLM_MODEL_VALUE_SIZE, "%s", printed != NULL ? printed : "?");
  free(printed);
}

static void compare_objects(const cJSON *a, const cJSON *b, const char *prefix,
                            struct comparison *comparison)
{
  for (const cJSON *item = a->child; item != NULL; item = item->next) {
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(b, item->string);
    if (other == NULL) continue; /* the other architecture has no such key */
    char name[PLM_MODEL_KEY_SIZE];
    snprintf(name, sizeof name, "%s%s", prefix, item->string);
    if (cJSON_IsObject(item)) {
      char deeper[PLM_MODEL_KEY_SIZE];
      snprintf(deeper, sizeof deeper, "%.*s.", PLM_MODEL_KEY_SIZE - 2, name);
      compare_objects(item, other, deeper, comparison);
      continue;
    }
    if (cJSON_Compare(item, other, true) || comparison->count == PLM_MODEL_KEYS) continue;
    struct plm_model_difference *difference = &comparison->differences[comparison->count++];
    memcpy(difference->key, name, sizeof name);
    print_value(item, difference->values[0]);
    print_value(other, difference->values[1]);
  }
}

size_t plm_model_config_compare(const struct plm_model_config *a, const struct plm_model_config *b,
                                struct plm_model_difference differences[PLM_MODEL_KEYS])
{
  struct comparison comparison = {.differences = differences};
  cJSON *json_a = plm_model_config_to_json(a), *json_b = plm_model_config_to_json(b);
  compare_objects(json_a, json_b, "", &comparison);
  cJSON_Delete(json_a);
  cJSON_Delete(json_b);
  return comparison.count;
}
