/* Makes curves from lines of metrics. */
#include "stages/views/metrics_curves.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/metrics/metrics.h"

struct reading {
  struct plm_curves *curves; /* (count) */
  const char *const *keys;   /* (count) */
  size_t count;
  bool failed;
};

/* NULL if there are more splits than a metrics file can have. */
static struct plm_curve *curve_of(struct plm_curves *curves, const char *split)
{
  for (size_t i = 0; i < curves->count; i++)
    if (strcmp(curves->list[i].split, split) == 0) return &curves->list[i];
  if (curves->count == PLM_CURVE_SPLITS) return NULL;
  struct plm_curve *curve = &curves->list[curves->count++];
  *curve = (struct plm_curve){0};
  snprintf(curve->split, sizeof curve->split, "%s", split);
  return curve;
}

static bool make_room(struct plm_curve *curve)
{
  if (curve->count < curve->capacity) return true;
  const size_t capacity = curve->capacity != 0 ? 2 * curve->capacity : 256;
  double *x = realloc(curve->x, capacity * sizeof *x);
  if (x == NULL) return false;
  curve->x = x;
  double *y = realloc(curve->y, capacity * sizeof *y);
  if (y == NULL) return false;
  curve->y = y;
  curve->capacity = capacity;
  return true;
}

static bool add_point(struct plm_curve *curve, double x, double y)
{
  size_t place = curve->count; /* nearly always at the end */
  while (place > 0 && curve->x[place - 1] >= x) place--;
  if (place < curve->count && curve->x[place] == x) {
    curve->y[place] = y;
    return true;
  }
  if (!make_room(curve)) return false;
  const size_t later = (curve->count - place) * sizeof *curve->x;
  memmove(curve->x + place + 1, curve->x + place, later);
  memmove(curve->y + place + 1, curve->y + place, later);
  curve->x[place] = x;
  curve->y[place] = y;
  curve->count++;
  return true;
}

/* A number; of an object, such as the norms of all layers, the root of the sum of their squares,
 * and of tokens by source their sum. */
static double value_of(const cJSON *line, const char *key)
{
  const cJSON *object = plm_metrics_value(line, key), *part;
  double sum = 0;
  if (!cJSON_IsObject(object)) return cJSON_IsNumber(object) ? object->valuedouble : NAN;
  const bool adds_up = strncmp(key, "tokens", 6) == 0;
  cJSON_ArrayForEach(part, object) sum += part->valuedouble * (adds_up ? 1.0 : part->valuedouble);
  return adds_up ? sum : sqrt(sum);
}

static bool take_line(void *context, const cJSON *line)
{
  struct reading *reading = context;
  const double step = plm_json_number(line, "step", NAN),
               baseline = plm_json_number(line, "baseline_entropy", NAN);
  char subject[sizeof reading->curves->list[0].split];
  plm_metrics_subject(line, subject, sizeof subject);
  for (size_t i = 0; i < reading->count && !reading->failed; i++) {
    struct plm_curves *curves = &reading->curves[i];
    const double value = value_of(line, reading->keys[i]);
    if (isfinite(baseline) && !plm_metrics_is_extra(line)) curves->baseline = baseline;
    if (!isfinite(step) || !isfinite(value)) continue;
    struct plm_curve *curve = curve_of(curves, subject);
    reading->failed = curve != NULL && !add_point(curve, step, value);
  }
  return !reading->failed;
}

plm_status plm_curves_read_keys(const char *path, const char *const *keys, size_t count,
                                struct plm_curves *curves, struct plm_error *error)
{
  struct reading reading = {.curves = curves, .keys = keys, .count = count};
  for (size_t i = 0; i < count; i++) curves[i] = (struct plm_curves){.baseline = NAN};
  PLM_TRY(plm_metrics_each(path, take_line, &reading, error));
  return reading.failed
             ? plm_error_set(error, PLM_NO_MEMORY, "no memory for the curves of %s", path)
             : PLM_OK;
}

plm_status plm_curves_read(const char *path, const char *key, struct plm_curves *curves,
                           struct plm_error *error)
{
  return plm_curves_read_keys(path, &key, 1, curves, error);
}

void plm_curves_deinit(struct plm_curves *curves)
{
  for (size_t i = 0; i < curves->count; i++) {
    free(curves->list[i].x);
    free(curves->list[i].y);
  }
  *curves = (struct plm_curves){0};
}
