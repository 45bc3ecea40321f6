/* Keeps samples in one small table and prints them by family, in the order of the table of metrics,
 * so that HELP and TYPE are printed once above the values of all instances. */
#include "common/metrics/prometheus.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

enum { SAMPLES_MAX = 8192, FAMILIES_MAX = 160, LABEL_SIZE = 256 };

static const char *const stage_names[] = {[PLM_STAGE_TRAINER] = "trainer",
                                          [PLM_STAGE_EVALUATOR] = "evaluator",
                                          [PLM_STAGE_PACKER] = "packer"};

/* Metrics that are not in the table of metrics. Each counted line adds `scale` times the value of
 * `field`, or 1 if field is "". If field is NULL, plm_prometheus_set sets the value. */
struct extra {
  const char *name;
  enum plm_metric_stage stage;
  bool counter;
  const char *field;
  double scale;
  const char *help;
};

#define SIGN_AGE "time since its last sign of life; with the label activity"
#define FATAL \
  "1 once it has failed for good; the label continue is the command that starts it again"
#define STATE "1, with the state as the label state"
static const struct extra extras[] = {
    {"ready", PLM_STAGE_TRAINER, false, NULL, 0, "1 while it is ready"},
    {"restarts_total", PLM_STAGE_TRAINER, true, NULL, 0, "restarts since `up`"},
    {"fatal", PLM_STAGE_TRAINER, false, NULL, 0, FATAL},
    {"failed_time_seconds", PLM_STAGE_TRAINER, false, NULL, 0,
     "when it last failed, in seconds since 1970, with the label cause; absent: never"},
    {"step_age_seconds", PLM_STAGE_TRAINER, false, NULL, 0,
     "time since the last step, or since the start of the trainer; with the label activity"},
    {"sign_age_seconds", PLM_STAGE_TRAINER, false, NULL, 0, SIGN_AGE},
    {"state", PLM_STAGE_TRAINER, false, NULL, 0, STATE},
    {"steps_total", PLM_STAGE_TRAINER, true, "", 1, "steps of this process"},
    {"step_seconds_total", PLM_STAGE_TRAINER, true, "step_ms", 1e-3, "time in steps"},
    {"data_wait_seconds_total", PLM_STAGE_TRAINER, true, "data_wait_ms", 1e-3,
     "time waited for chunks"},
    {"checkpoint_seconds_total", PLM_STAGE_TRAINER, true, "checkpoint_ms", 1e-3,
     "time waited for checkpointing"},
    {"ready", PLM_STAGE_EVALUATOR, false, NULL, 0, "1 while it is ready"},
    {"restarts_total", PLM_STAGE_EVALUATOR, true, NULL, 0, "restarts since `up`"},
    {"fatal", PLM_STAGE_EVALUATOR, false, NULL, 0, FATAL},
    {"failed_time_seconds", PLM_STAGE_EVALUATOR, false, NULL, 0,
     "when it last failed, in seconds since 1970, with the label cause; absent: never"},
    {"sign_age_seconds", PLM_STAGE_EVALUATOR, false, NULL, 0, SIGN_AGE},
    {"state", PLM_STAGE_EVALUATOR, false, NULL, 0, STATE},
    {"evaluations_total", PLM_STAGE_EVALUATOR, true, "", 1, "evaluations by this process"},
    {"evaluation_seconds_total", PLM_STAGE_EVALUATOR, true, "seconds", 1, "time in evaluations"},
    {"ready", PLM_STAGE_PACKER, false, NULL, 0, "1 while it is ready"},
    {"restarts_total", PLM_STAGE_PACKER, true, NULL, 0, "restarts since `up`"},
    {"fatal", PLM_STAGE_PACKER, false, NULL, 0, FATAL},
    {"failed_time_seconds", PLM_STAGE_PACKER, false, NULL, 0,
     "when it last failed, in seconds since 1970, with the label cause; absent: never"},
    {"sign_age_seconds", PLM_STAGE_PACKER, false, NULL, 0, SIGN_AGE},
    {"state", PLM_STAGE_PACKER, false, NULL, 0, STATE},
    {"corpus", PLM_STAGE_PACKER, false, NULL, 0,
     "1, with the corpora of the run that it serves as the label corpus"},
    {"windows_total", PLM_STAGE_PACKER, true, NULL, 0, "windows served by this process"},
    {"documents_total", PLM_STAGE_PACKER, true, NULL, 0, "documents served by this process"},
    {"tokens_total", PLM_STAGE_PACKER, true, NULL, 0, "real tokens served by this process"},
    {"standby", PLM_STAGE_PACKER, false, NULL, 0, "1 while it has the next window ready"},
};

struct family {
  const char *name, *help;
  enum plm_metric_stage stage;
  const struct extra *extra; /* NULL: a gauge from the table of metrics */
  bool milliseconds;         /* shown in seconds, the base unit that Prometheus wants */
};
#define MS_ENDING "_ms"
#define SECONDS_ENDING "_seconds"

struct sample {
  size_t family;
  char instance[96];
  char label[16], label_value[LABEL_SIZE]; /* one more label, or "" */
  double value;
};

struct plm_prometheus {
  char run[256];
  struct family families[FAMILIES_MAX];
  size_t family_count;
  struct sample *samples; /* SAMPLES_MAX */
  size_t count;
};

/* ---- families ------------------------------------------------------------------------------ */

static bool is_shown(const struct plm_metric_field *field)
{
  if (field->kind == PLM_METRIC_TEXT || strcmp(field->name, "time") == 0) return false;
  return field->stage != PLM_STAGE_PACKER ||
         (strcmp(field->name, "windows") !=
              0 && /* shown as counters: windows_total, documents_total */
          strcmp(field->name, "documents_per_second") != 0);
}

static bool ends_in_ms(const char *name)
{
  const size_t length = strlen(name), ending = strlen(MS_ENDING);
  return length > ending && strcmp(name + length - ending, MS_ENDING) == 0;
}

static void add_families(struct plm_prometheus *metrics)
{
  size_t fields;
  const struct plm_metric_field *table = plm_metric_table(&fields);
  PLM_ASSERT(fields + sizeof extras / sizeof extras[0] <= FAMILIES_MAX);
  for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) {
    metrics->families[metrics->family_count++] = (struct family){.name = extras[i].name,
                                                                 .help = extras[i].help,
                                                                 .stage = extras[i].stage,
                                                                 .extra = &extras[i]};
  }
  for (size_t i = 0; i < fields; i++) {
    if (!is_shown(&table[i])) continue;
    metrics->families[metrics->family_count++] =
        (struct family){.name = table[i].name,
                        .help = table[i].help,
                        .stage = table[i].stage,
                        .milliseconds = ends_in_ms(table[i].name)};
  }
}

/* Returns family_count if there is no family of this name. */
static size_t find_family(const struct plm_prometheus *metrics, enum plm_metric_stage stage,
                          const char *name)
{
  size_t i = 0;
  while (i < metrics->family_count &&
         (metrics->families[i].stage != stage || strcmp(metrics->families[i].name, name) != 0)) {
    i++;
  }
  return i;
}

struct plm_prometheus *plm_prometheus_open(const char *run)
{
  struct plm_prometheus *made = plm_alloc_zeroed(1, sizeof *made);
  made->samples = plm_alloc_zeroed(SAMPLES_MAX, sizeof *made->samples);
  snprintf(made->run, sizeof made->run, "%s", run);
  add_families(made);
  return made;
}

void plm_prometheus_close(struct plm_prometheus *metrics)
{
  if (metrics != NULL) free(metrics->samples);
  free(metrics);
}

/* ---- samples ------------------------------------------------------------------------------- */

/* The value of a sample, which is created with 0 if needed; NULL if the table is full. */
static double *sample_at(struct plm_prometheus *metrics, size_t family, const char *instance,
                         const char *label, const char *label_value)
{
  for (size_t i = 0; i < metrics->count; i++) {
    struct sample *sample = &metrics->samples[i];
    if (sample->family == family && strcmp(sample->instance, instance) == 0 &&
        strcmp(sample->label, label) == 0 && strcmp(sample->label_value, label_value) == 0) {
      return &sample->value;
    }
  }
  if (metrics->count == SAMPLES_MAX) return NULL;
  struct sample *made = &metrics->samples[metrics->count++];
  *made = (struct sample){.family = family};
  snprintf(made->instance, sizeof made->instance, "%s", instance);
  snprintf(made->label, sizeof made->label, "%s", label);
  snprintf(made->label_value, sizeof made->label_value, "%s", label_value);
  return &made->value;
}

static void prometheus_put(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                           const char *instance, const char *name, const char *label,
                           const char *label_value, double value)
{
  const size_t family = find_family(metrics, stage, name);
  double *place = family < metrics->family_count
                      ? sample_at(metrics, family, instance, label, label_value)
                      : NULL;
  if (place != NULL) *place = metrics->families[family].milliseconds ? 1e-3 * value : value;
}

void plm_prometheus_set(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                        const char *instance, const char *name, double value)
{
  prometheus_put(metrics, stage, instance, name, "", "", value);
}

void plm_prometheus_set_text(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                             const char *instance, const char *name, const char *label,
                             const char *text, double value)
{
  const size_t family = find_family(metrics, stage, name);
  for (size_t i = 0; i < metrics->count; i++) {
    struct sample *sample = &metrics->samples[i];
    if (sample->family != family || strcmp(sample->instance, instance) != 0) continue;
    snprintf(sample->label_value, sizeof sample->label_value, "%s", text);
    sample->value = value;
    return;
  }
  prometheus_put(metrics, stage, instance, name, label, text, value);
}

void plm_prometheus_started(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                            const char *instance)
{
  for (size_t i = 0; i < metrics->family_count; i++) {
    const struct extra *extra = metrics->families[i].extra;
    if (extra == NULL || extra->stage != stage || !extra->counter || extra->field == NULL) continue;
    double *place = sample_at(metrics, i, instance, "", "");
    if (place != NULL) *place = 0.0;
  }
}

void plm_prometheus_forget(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                           const char *instance)
{
  size_t kept = 0;
  for (size_t i = 0; i < metrics->count; i++) {
    const struct sample *sample = &metrics->samples[i];
    if (metrics->families[sample->family].stage == stage &&
        (instance == NULL || strcmp(sample->instance, instance) == 0)) {
      continue;
    }
    if (kept != i) metrics->samples[kept] = *sample;
    kept++;
  }
  metrics->count = kept;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void count_line(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                       const char *instance, const cJSON *line)
{
  for (size_t i = 0; i < metrics->family_count; i++) {
    const struct extra *extra = metrics->families[i].extra;
    if (extra == NULL || extra->stage != stage || extra->field == NULL) continue;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, extra->field);
    double *place = sample_at(metrics, i, instance, "", "");
    if (place == NULL) continue;
    if (extra->field[0] == '\0') {
      *place += 1.0;
    } else if (cJSON_IsNumber(item)) {
      *place += extra->scale * item->valuedouble;
    }
  }
}

/* The label that tells the parts of an object apart. */
static const char *label_of_parts(const char *name)
{
  static const char *const of_measures[] = {"low", "high", "baseline"};
  for (size_t i = 0; i < sizeof of_measures / sizeof *of_measures; i++)
    if (strcmp(name, of_measures[i]) == 0) return "measure";
  if (strstr(name, "_by_assay") != NULL) return "assay";
  if (strstr(name, "_by_label") != NULL) return "column";
  if (strstr(name, "mask_rate") != NULL) return "mask_rate";
  if (strstr(name, "_by_source") != NULL) return "source";
  const bool by_layer = strstr(name, "_norms") != NULL || strstr(name, "attention_") != NULL;
  return by_layer ? "layer" : "length";
}

void plm_prometheus_line(struct plm_prometheus *metrics, enum plm_metric_stage stage,
                         const char *instance, const cJSON *line, bool counted)
{
  const cJSON *split = cJSON_GetObjectItemCaseSensitive(line, "split"), *item, *part;
  if (stage == PLM_STAGE_EVALUATOR && !cJSON_IsString(split)) return; /* a skipped checkpoint */
  const char *label = cJSON_IsString(split) ? "split" : "";
  char value[LABEL_SIZE] = ""; /* of both labels, if it is about a further set */
  if (cJSON_IsString(split))
    snprintf(value, sizeof value, "%s%s%s", split->valuestring,
             plm_metrics_is_extra(line) ? "\t" : "",
             plm_metrics_is_extra(line) ? plm_metrics_set(line) : "");
  cJSON_ArrayForEach(item, line)
  {
    if (cJSON_IsNumber(item)) {
      prometheus_put(metrics, stage, instance, item->string, label, value, item->valuedouble);
    } else if (cJSON_IsNull(item)) { /* was not finite */
      prometheus_put(metrics, stage, instance, item->string, label, value, (double)NAN);
    } else if (cJSON_IsObject(item)) {
      const char *by = label_of_parts(item->string);
      cJSON_ArrayForEach(part, item)
      {
        char key[LABEL_SIZE];
        snprintf(key, sizeof key, "%s\n%s", value, part->string); /* both labels */
        if (cJSON_IsNumber(part) || cJSON_IsNull(part))
          prometheus_put(metrics, stage, instance, item->string, by, key,
                         cJSON_IsNumber(part) ? part->valuedouble : (double)NAN);
      }
    }
  }
  if (counted) count_line(metrics, stage, instance, line);
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_label(struct plm_text *text, const char *name, const char *value, size_t length)
{
  plm_text_printf(text, ",%s=\"", name);
  for (size_t i = 0; i < length; i++) {
    if (value[i] == '\\' || value[i] == '"') plm_text_puts(text, "\\");
    plm_text_append(text, value[i] == '\n' ? " " : &value[i], 1);
  }
  plm_text_puts(text, "\"");
}

/* The label `split`, and `set` if a tab and its name follow the split; nothing without a split. */
static void print_split(struct plm_text *text, const char *value, size_t length)
{
  if (length == 0) return;
  const char *tab = memchr(value, '\t', length);
  print_label(text, "split", value, tab != NULL ? (size_t)(tab - value) : length);
  if (tab != NULL) print_label(text, "set", tab + 1, length - (size_t)(tab + 1 - value));
}

static void print_number(struct plm_text *text, double value)
{
  if (isnan(value)) {
    plm_text_puts(text, " NaN\n");
  } else if (isinf(value)) {
    plm_text_puts(text, value > 0 ? " +Inf\n" : " -Inf\n");
  } else {
    plm_text_printf(text, " %.17g\n", value);
  }
}

static void print_name(const struct family *family, struct plm_text *text)
{
  const size_t cut = family->milliseconds ? strlen(MS_ENDING) : 0;
  plm_text_printf(text, "plm_%s_", stage_names[family->stage]);
  plm_text_append(text, family->name, strlen(family->name) - cut);
  if (family->milliseconds) plm_text_puts(text, SECONDS_ENDING);
}

static void print_sample(const struct plm_prometheus *metrics, const struct family *family,
                         const struct sample *sample, struct plm_text *text)
{
  const char *stage = stage_names[family->stage];
  print_name(family, text);
  plm_text_printf(text, "{stage=\"%s\"", stage);
  print_label(text, "instance", sample->instance, strlen(sample->instance));
  print_label(text, "run", metrics->run, strlen(metrics->run));
  const char *second = strchr(sample->label_value, '\n');
  if (second != NULL) {
    print_split(text, sample->label_value, (size_t)(second - sample->label_value));
    print_label(text, sample->label, second + 1, strlen(second + 1));
  } else if (strcmp(sample->label, "split") == 0) {
    print_split(text, sample->label_value, strlen(sample->label_value));
  } else if (sample->label[0] != '\0') {
    print_label(text, sample->label, sample->label_value, strlen(sample->label_value));
  }
  plm_text_puts(text, "}");
  print_number(text, sample->value);
}

static void print_head(const struct family *family, struct plm_text *text)
{
  plm_text_puts(text, "# HELP ");
  print_name(family, text);
  plm_text_printf(text, " %s\n# TYPE ", family->help);
  print_name(family, text);
  plm_text_puts(text, family->extra != NULL && family->extra->counter ? " counter\n" : " gauge\n");
}

void plm_prometheus_print(const struct plm_prometheus *metrics, struct plm_text *text)
{
  for (size_t f = 0; f < metrics->family_count; f++) {
    const struct family *family = &metrics->families[f];
    bool head = false;
    for (size_t i = 0; i < metrics->count; i++) {
      if (metrics->samples[i].family != f) continue;
      if (!head) {
        print_head(family, text);
        head = true;
      }
      print_sample(metrics, family, &metrics->samples[i], text);
    }
  }
}
