/* Makes curves from lines of metrics. */
#include "stages/views/metrics_curves.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/json.h"
#include "common/metrics/metrics.h"

struct reading {
  struct plm_curves *curves; /* (count) */
  const char *const *keys;   /* (count) */
  size_t count;
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

static void metrics_curves_make_room(struct plm_curve *curve)
{
  if (curve->count < curve->capacity) return;
  curve->capacity = curve->capacity != 0 ? 2 * curve->capacity : 256;
  curve->x = plm_realloc(curve->x, curve->capacity * sizeof *curve->x);
  curve->y = plm_realloc(curve->y, curve->capacity * sizeof *curve->y);
}

static void add_point(struct plm_curve *curve, double x, double y)
{
  size_t place = curve->count; /* nearly always at the end */
  while (place > 0 && curve->x[place - 1] >= x) place--;
  if (place < curve->count && curve->x[place] == x) {
    curve->y[place] = y;
    return;
  }
  metrics_curves_make_room(curve);
  const size_t later = (curve->count - place) * sizeof *curve->x;
  memmove(curve->x + place + 1, curve->x + place, later);
  memmove(curve->y + place + 1, curve->y + place, later);
  curve->x[place] = x;
  curve->y[place] = y;
  curve->count++;
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

static void metrics_curves_add_value(struct plm_curves *curves, const char *name, double step,
                                     double value)
{
  if (!isfinite(step) || !isfinite(value)) return;
  struct plm_curve *curve = curve_of(curves, name);
  if (curve != NULL) add_point(curve, step, value);
}

static void add_parts(struct plm_curves *curves, const char *subject, double step,
                      const cJSON *object)
{
  const cJSON *part;
  cJSON_ArrayForEach(part, object)
  {
    char name[sizeof curves->list[0].split];
    snprintf(name, sizeof name, "%.60s%s%.64s", subject, subject[0] != '\0' ? " " : "",
             part->string);
    metrics_curves_add_value(curves, name, step, metrics_curves_number_of(part, PARTS_APART));
  }
}

static bool curves_on_line(void *context, const cJSON *line)
{
  struct reading *reading = context;
  const double step = plm_json_number(line, "step", NAN),
               baseline = plm_json_number(line, "baseline_entropy", NAN);
  char subject[56];
  plm_metrics_subject(line, subject, sizeof subject);
  for (size_t i = 0; i < reading->count; i++) {
    struct plm_curves *curves = &reading->curves[i];
    enum parts parts;
    const cJSON *value = find_value(line, reading->keys[i], &parts);
    if (isfinite(baseline) && !plm_metrics_is_extra(line)) curves->baseline = baseline;
    if (cJSON_IsObject(value) && parts == PARTS_APART)
      add_parts(curves, subject, step, value);
    else
      metrics_curves_add_value(curves, subject, step, metrics_curves_number_of(value, parts));
  }
  return true;
}

plm_status plm_curves_read_keys(const char *path, const char *const *keys, size_t count,
                                struct plm_curves *curves, struct plm_error *error)
{
  struct reading reading = {.curves = curves, .keys = keys, .count = count};
  for (size_t i = 0; i < count; i++) curves[i] = (struct plm_curves){.baseline = NAN};
  return plm_metrics_each(path, curves_on_line, &reading, error);
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
