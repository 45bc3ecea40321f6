/* Lines, scalars and words about predicted labels. */
#include "evaluator/labels/label_report.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/base/text/printable.h"
#include "common/metrics/metrics.h"

/* The first and the one after the last measure of a task. */
static enum plm_measure first_measure(enum plm_label_task task)
{
  return task == PLM_TASK_REGRESSION ? PLM_MEASURE_SPEARMAN : PLM_MEASURE_ACCURACY;
}

static enum plm_measure end_measure(enum plm_label_task task)
{
  return task == PLM_TASK_REGRESSION ? PLM_MEASURE_ACCURACY : PLM_MEASURES;
}

void plm_label_report(const struct plm_label_result *result, cJSON *line)
{
  const int first = (int)first_measure(result->task);
  const int end = (int)end_measure(result->task);
  plm_metrics_number(line, "loss", result->loss);
  for (int k = first; k < end; k++)
    plm_metrics_number(line, plm_measure_names[k], result->values[k]);
  plm_metrics_integer(line, "labels", result->labels);
  plm_metrics_integer(line, "missing_labels", result->missing);
  if (result->unseen > 0) plm_metrics_integer(line, "unseen_labels", result->unseen);
  if (result->reason[0] != '\0') plm_metrics_string(line, "reason", result->reason);
  for (int k = first; k < end && result->column_count > 0; k++) {
    char *name = plm_format("%s_by_label", plm_measure_names[k]);
    cJSON *each = cJSON_AddObjectToObject(line, name);
    for (uint32_t c = 0; c < result->column_count; c++)
      plm_metrics_number(each, result->columns[c].name, result->columns[c].values[k]);
    free(name);
  }
}

void plm_label_report_each(const struct plm_label_result *result, plm_label_put *put, void *context)
{
  if (!isnan(result->loss)) put(context, "loss", result->loss);
  for (int k = 0; k < PLM_MEASURES; k++)
    if (!isnan(result->values[k])) put(context, plm_measure_names[k], result->values[k]);
  for (uint32_t c = 0; c < result->column_count; c++)
    for (int k = 0; k < PLM_MEASURES; k++) {
      if (isnan(result->columns[c].values[k])) continue;
      char *name = plm_format("%s_by_label/%s", plm_measure_names[k], result->columns[c].name);
      put(context, name, result->columns[c].values[k]);
      free(name);
    }
}

static void put_words(void *context, const char *name, double value)
{
  struct plm_text *text = context;
  plm_text_printf(text, "%s%s %.4f", text->length > 0 ? ", " : "", name, value);
}

void plm_label_report_words(const struct plm_label_result *result, struct plm_text *text)
{
  struct plm_label_result means = *result;
  means.column_count = 0;
  plm_label_report_each(&means, put_words, text);
  if (result->reason[0] != '\0')
    plm_text_printf(text, "%s%s", text->length > 0 ? "; " : "", result->reason);
}

static void print_values(const double values[PLM_MEASURES], enum plm_label_task task)
{
  for (int k = (int)first_measure(task); k < (int)end_measure(task); k++) {
    printf("%s %s ", k == (int)first_measure(task) ? "" : "  ", plm_measure_names[k]);
    if (isnan(values[k]))
      printf("-");
    else
      printf("%.4f", values[k]);
  }
  printf("\n");
}

void plm_label_report_print(const struct plm_label_result *result)
{
  printf("labels       %" PRIu64 ", and %" PRIu64 " missing\n", result->labels, result->missing);
  if (result->unseen > 0)
    printf("unseen       %" PRIu64 " labels of classes that were not in training\n",
           result->unseen);
  if (!isnan(result->loss)) printf("loss         %.6f\n", result->loss);
  printf("measures    ");
  print_values(result->values, result->task);
  for (uint32_t c = 0; c < result->column_count; c++) {
    plm_print(stdout, "  %-10s", result->columns[c].name);
    print_values(result->columns[c].values, result->task);
  }
  if (result->reason[0] != '\0') plm_print(stdout, "reason       %s\n", result->reason);
}
