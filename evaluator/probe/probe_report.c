/* Tables, bars, JSON and CSV of probes. */
#include "evaluator/probe/probe_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "common/metrics/metrics.h"
#include "evaluator/measures/class_counts.h"

const char *const plm_probe_task_names[] = {"regression", "classification", "residues", NULL};

static const char *task_name(enum plm_label_kind kind)
{
  return plm_probe_task_names[kind - PLM_LABEL_NUMBER];
}

enum plm_measure plm_probe_first_measure(enum plm_label_kind kind)
{
  return kind == PLM_LABEL_NUMBER ? PLM_MEASURE_SPEARMAN : PLM_MEASURE_ACCURACY;
}

enum plm_measure plm_probe_end_measure(enum plm_label_kind kind)
{
  return kind == PLM_LABEL_NUMBER ? PLM_MEASURE_ACCURACY : PLM_MEASURES;
}

/* ---- warnings ---- */

/* A class that items are tested on, but none is fitted to. */
static void warn_of_new_classes(const struct plm_labelled_table *table,
                                const struct plm_probe_items *items)
{
  const enum plm_label_part tested = plm_probe_tested(table);
  bool *fitted = plm_alloc_zeroed(table->class_count, sizeof *fitted);
  uint32_t new_classes = 0, first = 0;
  for (uint32_t i = 0; i < items->count; i++)
    if (items->parts[i] != (uint32_t)tested) fitted[items->labels[i]] = true;
  for (uint32_t i = 0; i < items->count; i++) {
    bool *seen = &fitted[items->labels[i]];
    if (*seen || items->parts[i] != (uint32_t)tested) continue;
    if (new_classes++ == 0) first = i;
    *seen = true;
  }
  if (new_classes > 0)
    plm_warning("%s:%llu: the class \"%.80s\"%s", table->path,
                (unsigned long long)table->rows[items->rows[first]].line,
                table->classes[items->labels[first]],
                new_classes > 1
                    ? " and others are not in the training data, so they are never predicted"
                    : " is not in the training data, so it is never predicted");
  free(fitted);
}

/* The place in table->shared of what is tested: 0 is all folds. */
static int shared_place(const struct plm_labelled_table *table)
{
  return table->folds > 0 ? 0 : (int)plm_probe_tested(table);
}

void plm_probe_warn(const struct plm_labelled_table *table, const struct plm_probe_items *items)
{
  char number[64];
  const int tested = shared_place(table);
  if (table->shared[tested].count > 0)
    plm_warning("%s:%llu: rows of the %s with a sequence that another part has too: %s; the "
                "measures are too good",
                table->path, (unsigned long long)table->shared[tested].line,
                table->folds > 0                ? "folds"
                : tested == (int)PLM_PART_VALID ? "validation part"
                                                : "test part",
                plm_format_count(table->shared[tested].count, number));
  if (table->folds == 0 && items->labels != NULL) warn_of_new_classes(table, items);
  if (items->cut > 0)
    plm_warning("sequences of more than %u tokens, cut to their first %u: %s", items->max_length,
                items->max_length, plm_format_count(items->cut, number));
}

/* ---- JSON ---- */

void plm_probe_add_fit(cJSON *object, enum plm_label_kind kind, const struct plm_probe_fit *fit)
{
  if (fit->fits == 1) {
    plm_metrics_number(object, "alpha", fit->alphas[0]);
  } else {
    cJSON *alphas = cJSON_AddArrayToObject(object, "alpha");
    for (uint32_t i = 0; i < fit->fits; i++)
      plm_json_append(alphas, cJSON_CreateNumber(fit->alphas[i]));
  }
  for (int k = (int)plm_probe_first_measure(kind); k < (int)plm_probe_end_measure(kind); k++) {
    cJSON *measure = cJSON_AddObjectToObject(object, plm_measure_names[k]);
    plm_metrics_number(measure, "value", fit->measured[k].value);
    plm_metrics_number(measure, "low", fit->measured[k].low);
    plm_metrics_number(measure, "high", fit->measured[k].high);
    plm_metrics_integer(measure, "count", fit->measured[k].count);
  }
}

void plm_probe_add_table(cJSON *object, const struct plm_labelled_table *table)
{
  plm_metrics_string(object, "table", table->path);
  plm_metrics_string(object, "target", table->target_name);
  plm_metrics_string(object, "task", task_name(table->kind));
  plm_metrics_integer(object, "rows", table->count);
  if (table->folds > 0) plm_metrics_integer(object, "folds", table->folds);
  for (int part = 0; part < PLM_PARTS && table->folds == 0; part++)
    plm_metrics_integer(object, plm_label_part_names[part], table->parts[part]);
  if (table->folds == 0)
    plm_metrics_string(object, "tested", plm_label_part_names[plm_probe_tested(table)]);
  plm_metrics_integer(object, "missing_labels", table->missing_labels);
  plm_metrics_integer(object, "missing_splits", table->missing_splits);
  plm_metrics_integer(object, "shared", table->shared[shared_place(table)].count);
  if (table->kind == PLM_LABEL_NUMBER) return;
  cJSON *classes = cJSON_AddArrayToObject(object, "classes");
  for (uint32_t k = 0; k < table->class_count; k++)
    plm_json_append(classes, cJSON_CreateString(table->classes[k]));
}

void plm_probe_add_results(cJSON *object, const struct plm_probe_results *results)
{
  const enum plm_label_kind kind = results->items.table->kind;
  const struct plm_probed *best = &results->layers[results->best];
  plm_metrics_string(object, "layer", best->layer);
  plm_probe_add_fit(object, kind, &best->fit);
  cJSON *layers = results->count > 1 ? cJSON_AddArrayToObject(object, "layers") : NULL;
  for (uint32_t i = 0; i < results->count && layers != NULL; i++) {
    cJSON *layer = cJSON_CreateObject();
    plm_metrics_string(layer, "layer", results->layers[i].layer);
    plm_probe_add_fit(layer, kind, &results->layers[i].fit);
    plm_json_append(layers, layer);
  }
  plm_probe_add_fit(cJSON_AddObjectToObject(object, "baseline"), kind, &results->baseline);
}

/* ---- text ---- */

enum { NAME_WIDTH = 32, MEASURE_WIDTH = 24, BAR = 40 };

void plm_probe_print_table(const struct plm_labelled_table *table)
{
  char number[64];
  plm_print(stdout, "table   %s: %s, %s of \"%s\"", table->path,
            plm_format_quantity(table->count, "row", number), task_name(table->kind),
            table->target_name);
  if (table->kind != PLM_LABEL_NUMBER)
    printf(", %s", plm_format_quantity(table->class_count, "class", number));
  if (table->folds > 0)
    printf("\nsplit   %s, each predicted by a probe of the others",
           plm_format_quantity(table->folds, "fold", number));
  else
    printf("\nsplit   train %zu, valid %zu, test %zu%s%s", table->parts[PLM_PART_TRAIN],
           table->parts[PLM_PART_VALID], table->parts[PLM_PART_TEST],
           table->hashed ? " (by the hash of the sequence)" : "",
           plm_probe_tested(table) == PLM_PART_VALID ? "; valid is tested" : "");
  if (table->missing_labels > 0)
    printf("\nmissing %s without a label, left out",
           plm_format_quantity(table->missing_labels, "row", number));
  if (table->missing_splits > 0)
    printf("\nmissing %s without a split, left out",
           plm_format_quantity(table->missing_splits, "row", number));
  printf("\n\n");
}

void plm_probe_print_header(const struct plm_labelled_table *table)
{
  printf("%-*s  %-7s %-7s", NAME_WIDTH, "checkpoint", "layer", "alpha");
  for (int k = (int)plm_probe_first_measure(table->kind);
       k < (int)plm_probe_end_measure(table->kind); k++)
    printf(" %-*s", k + 1 == (int)plm_probe_end_measure(table->kind) ? 0 : MEASURE_WIDTH,
           plm_measure_names[k]);
  printf("\n");
}

void plm_probe_print_row(const char *name, const char *layer, enum plm_label_kind kind,
                         const struct plm_probe_fit *fit)
{
  char alpha[32] = "various";
  bool same = true;
  for (uint32_t i = 1; i < fit->fits; i++) same &= fit->alphas[i] == fit->alphas[0];
  if (same) snprintf(alpha, sizeof alpha, "%g", fit->alphas[0]);
  plm_print(stdout, "%-*s  %-7s %-7s", NAME_WIDTH, name, layer, alpha);
  for (int k = (int)plm_probe_first_measure(kind); k < (int)plm_probe_end_measure(kind); k++) {
    const struct plm_measured *measured = &fit->measured[k];
    char text[64] = "-";
    if (!isnan(measured->value))
      snprintf(text, sizeof text, isnan(measured->low) ? "%.3f" : "%.3f [%.3f, %.3f]",
               measured->value, measured->low, measured->high);
    const bool last = k + 1 == (int)plm_probe_end_measure(kind);
    printf(" %-*s", last ? 0 : MEASURE_WIDTH, text);
  }
  printf("\n");
}

void plm_probe_print_layers(const struct plm_probe_results *results)
{
  const enum plm_measure measure = plm_probe_first_measure(results->items.table->kind);
  double most = 0;
  if (results->count < 2) return;
  for (uint32_t i = 0; i < results->count; i++)
    most = fmax(most, results->layers[i].fit.measured[measure].value);
  printf("\nlayer    %s of the test part (* has the smallest loss where alpha was chosen)\n",
         plm_measure_names[measure]);
  for (uint32_t i = 0; i < results->count; i++) {
    const double value = results->layers[i].fit.measured[measure].value;
    const int length = value > 0 ? (int)lround(BAR * value / most) : 0;
    char bar[BAR + 1];
    memset(bar, '#', (size_t)length);
    bar[length] = '\0';
    printf("%c %5s  %6.3f  %s\n", i == results->best ? '*' : ' ', results->layers[i].layer, value,
           bar);
  }
}

/* ---- predictions ---- */

static void put_class(struct plm_text *text, const struct plm_labelled_table *table, uint32_t k)
{
  plm_text_puts(text, ",");
  plm_text_put_csv(text, table->classes[k], strlen(table->classes[k]), ',');
}

static void put_predicted_header(struct plm_text *text, const struct plm_labelled_table *table)
{
  plm_text_puts(text, "line,");
  if (table->kind == PLM_LABEL_RESIDUES) plm_text_puts(text, "position,");
  plm_text_put_csv(text, table->target_name, strlen(table->target_name), ',');
  plm_text_puts(text, ",predicted");
  for (uint32_t k = 0; k < table->class_count; k++) {
    char *name = plm_format("p(%s)", table->classes[k]);
    plm_text_puts(text, ",");
    plm_text_put_csv(text, name, strlen(name), ',');
    free(name);
  }
  plm_text_puts(text, "\n");
}

static void put_prediction(struct plm_text *text, const struct plm_probe_items *items,
                           const struct plm_probe_fit *fit, uint32_t i)
{
  const struct plm_labelled_table *table = items->table;
  const uint32_t item = fit->items[i], classes = table->class_count;
  plm_text_printf(text, "%llu", (unsigned long long)table->rows[items->rows[item]].line);
  if (items->positions != NULL) plm_text_printf(text, ",%u", items->positions[item] + 1);
  if (table->kind == PLM_LABEL_NUMBER) {
    plm_text_printf(text, ",%.17g,%.17g\n", items->targets[item], fit->predicted[i]);
    return;
  }
  const double *probabilities = fit->predicted + (size_t)i * classes;
  put_class(text, table, (uint32_t)items->labels[item]);
  put_class(text, table, plm_class_best(probabilities, classes));
  for (uint32_t k = 0; k < classes; k++) plm_text_printf(text, ",%.17g", probabilities[k]);
  plm_text_puts(text, "\n");
}

plm_status plm_probe_write_predictions(const struct plm_probe_results *results, const char *output,
                                       struct plm_error *error)
{
  const struct plm_probe_fit *fit = &results->layers[results->best].fit;
  struct plm_text text = {0};
  struct plm_output_file *file;
  PLM_TRY(plm_output_open(output, &file, error));
  put_predicted_header(&text, results->items.table);
  plm_status status = PLM_OK;
  for (uint32_t i = 0; i <= fit->count && status == PLM_OK; i++) {
    if (fwrite(text.data, 1, text.length, plm_output_stream(file)) != text.length)
      status = plm_output_failed(file, error);
    plm_text_clear(&text);
    if (i < fit->count) put_prediction(&text, &results->items, fit, i);
  }
  if (status == PLM_OK) status = plm_output_finish(file, error);
  plm_output_close(file);
  plm_text_deinit(&text);
  return status;
}
