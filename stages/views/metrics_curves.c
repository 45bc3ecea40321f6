/* Makes curves from lines of metrics. */
#include "stages/views/metrics_curves.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
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

static bool metrics_curves_make_room(struct plm_curve *curve)
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
  if (!metrics_curves_make_room(curve)) return false;
  const size_t later = (curve->count - place) * sizeof *curve->x;
  memmove(curve->x + place + 1, curve->x + place, later);
  memmove(curve->y + place + 1, curve->y + place, later);
  curve->x[place] = x;
  curve->y[place] = y;
  curve->count++;
  return true;
}

/* What the parts of an object become. */
enum parts { PARTS_ADDED, PARTS_AS_NORM, PARTS_APART };

/* The value of a key in a line, NULL without one. */
static const cJSON *find_value(const cJSON *line, const char *key, enum parts *parts)
{
  const size_t length = strlen(key);
  char name[64];
  *parts = strncmp(key, "tokens", 6) == 0  ? PARTS_ADDED
           : strstr(key, "_norms") != NULL ? PARTS_AS_NORM
                                           : PARTS_APART;
  if (length < 2 || strcmp(key + length - 2, "/*") != 0) return plm_metrics_value(line, key);
  *parts = PARTS_APART;
  snprintf(name, sizeof name, "%.*s", (int)length - 2, key);
  return plm_metrics_value(line, name);
}

/* The one number of a value; NAN if it has none. */
static double metrics_curves_number_of(const cJSON *value, enum parts parts)
{
  const cJSON *part;
  double sum = 0;
  if (!cJSON_IsObject(value)) return cJSON_IsNumber(value) ? value->valuedouble : NAN;
  const bool squares = parts == PARTS_AS_NORM;
  cJSON_ArrayForEach(part, value) sum += part->valuedouble * (squares ? part->valuedouble : 1.0);
  return squares ? sqrt(sum) : sum;
}

static void metrics_curves_add_value(struct reading *reading, struct plm_curves *curves,
                                     const char *name, double step, double value)
{
  if (!isfinite(step) || !isfinite(value) || reading->failed) return;
  struct plm_curve *curve = curve_of(curves, name);
  reading->failed = curve != NULL && !add_point(curve, step, value);
}

static void add_parts(struct reading *reading, struct plm_curves *curves, const char *subject,
                      double step, const cJSON *object)
{
  const cJSON *part;
  cJSON_ArrayForEach(part, object)
  {
    char name[sizeof curves->list[0].split];
    snprintf(name, sizeof name, "%.60s%s%.64s", subject, subject[0] != '\0' ? " " : "",
             part->string);
    metrics_curves_add_value(reading, curves, name, step,
                             metrics_curves_number_of(part, PARTS_APART));
  }
}

static bool curves_on_line(void *context, const cJSON *line)
{
  struct reading *reading = context;
  const double step = plm_json_number(line, "step", NAN),
               baseline = plm_json_number(line, "baseline_entropy", NAN);
  char subject[56];
  plm_metrics_subject(line, subject, sizeof subject);
  for (size_t i = 0; i < reading->count && !reading->failed; i++) {
    struct plm_curves *curves = &reading->curves[i];
    enum parts parts;
    const cJSON *value = find_value(line, reading->keys[i], &parts);
    if (isfinite(baseline) && !plm_metrics_is_extra(line)) curves->baseline = baseline;
    if (cJSON_IsObject(value) && parts == PARTS_APART)
      add_parts(reading, curves, subject, step, value);
    else
      metrics_curves_add_value(reading, curves, subject, step,
                               metrics_curves_number_of(value, parts));
  }
  return !reading->failed;
}

plm_status plm_curves_read_keys(const char *path, const char *const *keys, size_t count,
                                struct plm_curves *curves, struct plm_error *error)
{
  struct reading reading = {.curves = curves, .keys = keys, .count = count};
  for (size_t i = 0; i < count; i++) curves[i] = (struct plm_curves){.baseline = NAN};
  PLM_TRY(plm_metrics_each(path, curves_on_line, &reading, error));
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
