/* Writes rows and JSON objects as they come, so that memory does not grow with their number. */
#include "evaluator/score/score_output.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"

struct plm_score_output {
  const char *path; /* NULL: stdout */
  char temporary[PLM_PATH_SIZE];
  FILE *csv; /* NULL if no CSV is written */
  bool json;
  size_t count;
};

static plm_status failed(const struct plm_score_output *output, struct plm_error *error)
{
  return plm_error_errno(error, "cannot write %s",
                         output->path != NULL && output->csv != stdout ? output->temporary
                                                                       : "stdout");
}

plm_status plm_score_output_open(const char *path, bool rows, bool json, const char *header,
                                 size_t header_size, struct plm_score_output **output,
                                 struct plm_error *error)
{
  struct plm_score_output *opened = calloc(1, sizeof *opened);
  if (opened == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  opened->path = path;
  opened->json = json;
  plm_status status = PLM_OK;
  if (path != NULL) {
    const int size =
        snprintf(opened->temporary, sizeof opened->temporary, "%s.tmp-%ld", path, (long)getpid());
    if (size >= PLM_PATH_SIZE)
      status = plm_error_set(error, PLM_LIMIT, "the path %.100s… is too long", path);
    else if ((opened->csv = fopen(opened->temporary, "we")) == NULL)
      status = failed(opened, error);
  } else if (rows) {
    opened->csv = stdout;
  }
  if (status == PLM_OK && opened->csv != NULL)
    if (fwrite(header, 1, header_size, opened->csv) != header_size) status = failed(opened, error);
  if (status == PLM_OK && json && fputs("{\"variants\":[", stdout) == EOF)
    status = failed(opened, error);
  if (status != PLM_OK) {
    plm_score_output_close(opened);
    return status;
  }
  *output = opened;
  return PLM_OK;
}

static plm_status add_json(struct plm_score_output *output, const struct plm_score_row *row,
                           double score, struct plm_error *error)
{
  char *name = strndup(row->mutant, row->mutant_size), *text = NULL;
  cJSON *object = cJSON_CreateObject();
  bool whole = name != NULL && cJSON_AddStringToObject(object, "mutant", name) != NULL &&
               cJSON_AddNumberToObject(object, "score", score) != NULL;
  if (whole && !isnan(row->measured))
    whole = cJSON_AddNumberToObject(object, "measured", row->measured) != NULL;
  if (whole) text = cJSON_PrintUnformatted(object);
  cJSON_Delete(object);
  free(name);
  if (text == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  const int printed = printf("%s%s", output->count == 0 ? "" : ",", text);
  cJSON_free(text);
  return printed < 0 ? failed(output, error) : PLM_OK;
}

plm_status plm_score_output_add(struct plm_score_output *output, const struct plm_score_row *row,
                                double *written, struct plm_error *error)
{
  char number[64];
  snprintf(number, sizeof number, "%.6f", row->score);
  *written = strtod(number, NULL) + 0.0;
  if (*written == 0) memcpy(number, "0.000000", sizeof "0.000000"); /* not -0 */
  if (output->csv != NULL &&
      (fwrite(row->fields, 1, row->fields_size, output->csv) != row->fields_size ||
       fprintf(output->csv, "%s\n", number) < 0))
    return failed(output, error);
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

static plm_status finish_json(struct plm_score_output *output,
                              const struct plm_rank_correlation *correlation,
                              struct plm_error *error)
{
  int printed = printf("]");
  if (correlation != NULL) {
    cJSON *object = cJSON_CreateObject();
    add_number(object, "value", correlation->value);
    add_number(object, "low", correlation->low);
    add_number(object, "high", correlation->high);
    add_number(object, "count", (double)correlation->count);
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (text == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
    printed = printf(",\"spearman\":%s", text);
    cJSON_free(text);
  }
  return printed < 0 || puts("}") == EOF ? failed(output, error) : PLM_OK;
}

plm_status plm_score_output_finish(struct plm_score_output *output,
                                   const struct plm_rank_correlation *correlation,
                                   struct plm_error *error)
{
  if (output->json) PLM_TRY(finish_json(output, correlation, error));
  if ((output->json || output->csv == stdout) && fflush(stdout) != 0) return failed(output, error);
  if (output->path == NULL) return PLM_OK;
  const bool whole = fflush(output->csv) == 0 && fsync(fileno(output->csv)) == 0;
  if (!whole) return failed(output, error);
  if (fclose(output->csv) != 0) {
    output->csv = NULL;
    return failed(output, error);
  }
  output->csv = NULL;
  if (rename(output->temporary, output->path) != 0)
    return plm_error_errno(error, "cannot write %s", output->path);
  output->temporary[0] = '\0';
  return PLM_OK;
}

void plm_score_output_close(struct plm_score_output *output)
{
  if (output == NULL) return;
  if (output->csv != NULL && output->csv != stdout) fclose(output->csv);
  if (output->temporary[0] != '\0') unlink(output->temporary);
  free(output);
}
