/* The history of a mixture as JSON, in a checkpoint's trainer.json. */
#include <cjson/cJSON.h>
#include <stdio.h>

#include "common/base/text/json.h"
#include "common/plan/mixture.h"

static void put_integer(cJSON *json, const char *name, uint64_t value)
{
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  cJSON_AddRawToObject(json, name, digits);
}

/* With all digits: cJSON leaves out the last ones, and the mixture read back would differ. */
static cJSON *weight_json(double weight)
{
  char digits[40];
  snprintf(digits, sizeof digits, "%.17g", weight);
  return weight < 0 ? cJSON_CreateNull() : cJSON_CreateRaw(digits);
}

struct cJSON *plm_mixture_history_to_json(const struct plm_mixture_history *history)
{
  cJSON *array = cJSON_CreateArray();
  for (size_t p = 0; p < history->count; p++) {
    const struct plm_mixture_part *part = &history->parts[p];
    const struct plm_mixture *mixture = &part->mixture;
    cJSON *entry = cJSON_CreateObject();
    put_integer(entry, "step", part->first + 1);
    put_integer(entry, "chunks", part->chunks);
    put_integer(entry, "mixture_steps", mixture->steps);
    cJSON *weights = cJSON_AddArrayToObject(entry, "weights");
    cJSON *final_weights = cJSON_AddArrayToObject(entry, "final_weights");
    for (uint32_t k = 0; k < mixture->count; k++) {
      plm_json_append(weights, weight_json(mixture->weights[k]));
      plm_json_append(final_weights, weight_json(mixture->final_weights[k]));
    }
    plm_json_append(array, entry);
  }
  return array;
}

static bool get_integer(const cJSON *json, const char *name, double least, double most,
                        uint64_t *value)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= least && item->valuedouble <= most))
    return false;
  *value = (uint64_t)item->valuedouble;
  return (double)*value == item->valuedouble;
}

/* A weight is finite and not negative. */
static bool get_weight(const cJSON *item, double *weight)
{
  *weight = cJSON_IsNumber(item) ? item->valuedouble : -1;
  return *weight >= 0 && *weight <= 1e300;
}

static bool get_part(const cJSON *entry, struct plm_mixture_part *part)
{
  const cJSON *weights = cJSON_GetObjectItemCaseSensitive(entry, "weights");
  const cJSON *final_weights = cJSON_GetObjectItemCaseSensitive(entry, "final_weights");
  struct plm_mixture *mixture = &part->mixture;
  uint64_t chunks;
  double sum = 0;
  *part = (struct plm_mixture_part){0};
  if (!get_integer(entry, "step", 1, 0x1p53, &part->first) ||
      !get_integer(entry, "chunks", 1, 1 << 24, &chunks) ||
      !get_integer(entry, "mixture_steps", 0, 0x1p53, &mixture->steps) || !cJSON_IsArray(weights) ||
      !cJSON_IsArray(final_weights))
    return false;
  part->first--;
  part->chunks = (uint32_t)chunks;
  const int count = cJSON_GetArraySize(weights);
  if (count < 1 || count > PLM_MAX_SOURCES || cJSON_GetArraySize(final_weights) != count)
    return false;
  mixture->count = (uint32_t)count;
  for (int k = 0; k < count; k++) {
    const cJSON *last = cJSON_GetArrayItem(final_weights, k);
    if (!get_weight(cJSON_GetArrayItem(weights, k), &mixture->weights[k])) return false;
    if (!get_weight(last, &mixture->final_weights[k]) && !cJSON_IsNull(last)) return false;
    sum += mixture->weights[k];
  }
  return sum > 0;
}

plm_status plm_mixture_history_from_json(struct plm_mixture_history *history,
                                         const struct cJSON *json, struct plm_error *error)
{
  const cJSON *entry;
  uint32_t before = 0;
  cJSON_ArrayForEach(entry, json)
  {
    struct plm_mixture_part part;
    const size_t count = history->count;
    const uint64_t least = count > 0 ? history->parts[count - 1].first + 1 : 0;
    if (!get_part(entry, &part) || part.first < least || (count == 0 && part.first != 0) ||
        part.mixture.count < before)
      return plm_error_set(error, PLM_FORMAT, "entry %zu of the cursor's mixture is not valid",
                           count);
    before = part.mixture.count;
    plm_mixture_history_add(history, part.first, part.chunks, &part.mixture);
    if (history->count == count) /* the same as before */
      return plm_error_set(error, PLM_FORMAT, "an entry of the cursor's mixture is repeated");
  }
  if (!cJSON_IsArray(json) || history->count == 0)
    return plm_error_set(error, PLM_FORMAT, "the cursor has sources, but no mixture");
  return PLM_OK;
}
