/* Reads metrics files: all lines or the last one. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/strict_json.h"
#include "common/metrics/metrics.h"

enum { TAIL_BYTES = 1 << 16 }; /* lines are much shorter */

plm_status plm_metrics_each(const char *path, bool (*visit)(void *context, const cJSON *line),
                            void *context, struct plm_error *error)
{
  FILE *file = fopen(path, "re");
  if (file == NULL && errno == ENOENT) return PLM_OK;
  if (file == NULL) return plm_error_errno(error, "cannot open %s", path);
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  bool going = true;
  plm_status status = PLM_OK;
  while (going && (length = getline(&text, &capacity, file)) > 0) {
    if (text[length - 1] != '\n') break; /* incomplete, or still being written */
    cJSON *line = plm_json_line(text);
    if (cJSON_IsObject(line)) going = visit(context, line);
    if (line == NULL && plm_json_no_memory()) {
      status = plm_error_set(error, PLM_NO_MEMORY, "no memory for a line of %s", path);
      going = false;
    }
    cJSON_Delete(line);
  }
  if (status == PLM_OK && ferror(file)) status = plm_error_errno(error, "cannot read %s", path);
  free(text);
  fclose(file);
  return status;
}

/* Parses the last line of bytes[0..size) that ends with a newline; NULL if there is none. */
static cJSON *last_line(char *bytes, size_t size)
{
  char *end = memrchr(bytes, '\n', size);
  if (end == NULL) return NULL;
  *end = '\0';
  char *begin = memrchr(bytes, '\n', (size_t)(end - bytes));
  return plm_json_line(begin != NULL ? begin + 1 : bytes);
}

plm_status plm_metrics_last(const char *path, cJSON **line, struct plm_error *error)
{
  *line = NULL;
  FILE *file = fopen(path, "re");
  if (file == NULL) return plm_error_errno(error, "cannot open %s", path);
  char *bytes = plm_alloc(TAIL_BYTES);
  if (fseeko(file, 0, SEEK_END) == 0) {
    const off_t end = ftello(file);
    fseeko(file, end > TAIL_BYTES ? end - TAIL_BYTES : 0, SEEK_SET);
    *line = last_line(bytes, fread(bytes, 1, TAIL_BYTES, file));
  }
  free(bytes);
  fclose(file);
  if (*line == NULL) return plm_error_set(error, PLM_NOT_FOUND, "%s has no complete line", path);
  return PLM_OK;
}
