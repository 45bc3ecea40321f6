/* Tables of statistics as CSV, JSON and lines on stderr. */
#include "evaluator/score/assay_report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/log/progress.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/cli/output_file.h"
#include "common/metrics/metrics.h"

struct summary {
  struct plm_assay_mean *means;
  size_t count;
  double overall[PLM_ASSAY_STATISTICS];
};

static plm_status write_csv(const struct plm_assay_result *results, size_t count,
                            const char *output, struct plm_error *error)
{
  struct plm_text text = {0};
  plm_text_puts(&text, "DMS_id,UniProt_ID,coarse_selection_type,number_mutants");
  for (int k = 0; k < PLM_ASSAY_STATISTICS; k++)
    plm_text_printf(&text, ",%s", plm_assay_statistic_names[k]);
  plm_text_puts(&text, "\n");
  for (size_t i = 0; i < count; i++) {
    const char *const fields[] = {results[i].id, results[i].uniprot, results[i].selection};
    for (size_t k = 0; k < 3; k++) {
      plm_text_put_csv(&text, fields[k], strlen(fields[k]), ',');
      plm_text_puts(&text, ",");
    }
    plm_text_printf(&text, "%zu", results[i].variants);
    for (int k = 0; k < PLM_ASSAY_STATISTICS; k++) {
      const double value = results[i].statistics[k];
      plm_text_puts(&text, ",");
      if (!isnan(value)) plm_text_printf(&text, "%.6f", value);
    }
    plm_text_puts(&text, "\n");
  }
  const plm_status status = plm_output_write(output, text.data, text.length, false, error);
  plm_text_deinit(&text);
  return status;
}

static void add_statistics(cJSON *object, const double statistics[PLM_ASSAY_STATISTICS])
{
  for (int k = 0; k < PLM_ASSAY_STATISTICS; k++)
    plm_metrics_number(object, plm_assay_statistic_names[k], statistics[k]);
}

static plm_status assay_report_print_json(const struct plm_assay_result *results, size_t count,
                                          const struct summary *summary, struct plm_error *error)
{
  cJSON *json = cJSON_CreateObject();
  cJSON *assays = cJSON_AddArrayToObject(json, "assays");
  for (size_t i = 0; i < count; i++) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "DMS_id", results[i].id);
    cJSON_AddStringToObject(object, "UniProt_ID", results[i].uniprot);
    cJSON_AddStringToObject(object, "coarse_selection_type", results[i].selection);
    cJSON_AddNumberToObject(object, "number_mutants", (double)results[i].variants);
    add_statistics(object, results[i].statistics);
    plm_json_append(assays, object);
  }
  cJSON *types = cJSON_AddArrayToObject(json, "selection_types");
  for (size_t i = 0; i < summary->count; i++) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "coarse_selection_type", summary->means[i].selection);
    add_statistics(object, summary->means[i].statistics);
    plm_json_append(types, object);
  }
  add_statistics(cJSON_AddObjectToObject(json, "average"), summary->overall);
  return plm_json_print(json, error);
}

static void log_means(const char *name, const double statistics[PLM_ASSAY_STATISTICS])
{
  struct plm_text text = {0};
  for (int k = 0; k < PLM_ASSAY_STATISTICS; k++) {
    const char *separator = k == 0 ? "" : ", ";
    if (isnan(statistics[k]))
      plm_text_printf(&text, "%s%s -", separator, plm_assay_statistic_names[k]);
    else
      plm_text_printf(&text, "%s%s %.3f", separator, plm_assay_statistic_names[k], statistics[k]);
  }
  plm_info("%s: %s", name, text.data);
  plm_text_deinit(&text);
}

plm_status plm_assay_report(const struct plm_assay_result *results, size_t count,
                            const char *output, bool json, struct plm_error *error)
{
  struct summary summary;
  char assays[64], name[96];
  PLM_TRY(plm_assay_means(results, count, &summary.means, &summary.count, summary.overall, error));
  for (size_t i = 0; i < summary.count; i++)
    log_means(summary.means[i].selection, summary.means[i].statistics);
  snprintf(name, sizeof name, "average of %s", plm_format_quantity(count, "assay", assays));
  log_means(name, summary.overall);
  plm_status status = PLM_OK;
  if (output != NULL || !json)
    status = write_csv(results, count, output != NULL ? output : "-", error);
  if (status == PLM_OK && json) status = assay_report_print_json(results, count, &summary, error);
  free(summary.means);
  return status;
}
