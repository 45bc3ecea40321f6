/* Writes rows and JSON objects as they come, so that memory does not grow with their number. */
#include "evaluator/score/score_output.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/json.h"
#include "common/cli/output_file.h"

struct plm_score_output {
  struct plm_output_file *csv; /* NULL if no CSV is written */
  bool json;
  size_t count;
};

plm_status plm_score_output_open(const char *path, bool rows, bool json, const char *header,
                                 size_t header_size, struct plm_score_output **output,
                                 struct plm_error *error)
{
  struct plm_score_output *opened = plm_alloc_zeroed(1, sizeof *opened);
  opened->json = json;
  plm_status status = PLM_OK;
  if (path != NULL || rows)
    status = plm_output_open(path != NULL ? path : "-", &opened->csv, error);
  if (status != PLM_OK) {
    plm_score_output_close(opened);
    return status;
  }
  if (opened->csv != NULL &&
      fwrite(header, 1, header_size, plm_output_stream(opened->csv)) != header_size) {
    status = plm_output_failed(opened->csv, error);
    plm_score_output_close(opened);
    return status;
  }
  if (json) fputs("{\"variants\":[", stdout);
  *output = opened;
  return PLM_OK;
}

static plm_status add_json(struct plm_score_output *output, const struct plm_score_row *row,
                           double score, struct plm_error *error)
{
  char *name = plm_strndup(row->mutant, row->mutant_size);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "mutant", name);
  cJSON_AddNumberToObject(object, "score", score);
  if (!isnan(row->measured)) cJSON_AddNumberToObject(object, "measured", row->measured);
  char *text = plm_json_text(object, false);
  cJSON_Delete(object);
  free(name);
  printf("%s%s", output->count == 0 ? "" : ",", text);
  free(text);
  return ferror(stdout) ? plm_error_errno(error, "cannot write standard output") : PLM_OK;
}

plm_status plm_score_output_add(struct plm_score_output *output, const struct plm_score_row *row,
                                double *written, struct plm_error *error)
{
  char number[64];
  snprintf(number, sizeof number, "%.6f", row->score);
  *written = strtod(number, NULL) + 0.0;
  if (*written == 0) memcpy(number, "0.000000", sizeof "0.000000"); /* not -0 */
  if (output->csv != NULL) {
    FILE *csv = plm_output_stream(output->csv);
    fwrite(row->fields, 1, row->fields_size, csv);
    fprintf(csv, "%s\n", number);
    if (ferror(csv)) return plm_output_failed(output->csv, error);
  }
  if (output->json) PLM_TRY(add_json(output, row, *written, error));
  output->count++;
  return PLM_OK;
}

static void add_number(cJSON *object, const char *name, double value)
{
  if (isfinite(value))
    cJSON_AddNumberToObject(object, name, value);
  else
    cJSON_AddNullToObject(object, name);
}

static void finish_json(const struct plm_rank_correlation *correlation)
{
  printf("]");
  if (correlation != NULL) {
    cJSON *object = cJSON_CreateObject();
    add_number(object, "value", correlation->value);
    add_number(object, "low", correlation->low);
    add_number(object, "high", correlation->high);
    add_number(object, "count", (double)correlation->count);
    char *text = plm_json_bytes(object, false);
    cJSON_Delete(object);
    printf(",\"spearman\":%s", text);
    free(text);
  }
  puts("}");
}

plm_status plm_score_output_finish(struct plm_score_output *output,
                                   const struct plm_rank_correlation *correlation,
                                   struct plm_error *error)
{
  if (output->json) finish_json(correlation);
  if (output->json && ferror(stdout))
    return plm_error_set(error, PLM_IO, "a part of standard output could not be written");
  return output->csv != NULL ? plm_output_finish(output->csv, error) : PLM_OK;
}

void plm_score_output_close(struct plm_score_output *output)
{
  if (output == NULL) return;
  plm_output_close(output->csv);
  free(output);
}
