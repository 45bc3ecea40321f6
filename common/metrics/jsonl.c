/* Writes metrics as lines of JSON. After a crash, the last line may be incomplete; the next opening
 * cuts it off. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/descriptors.h"
#include "common/base/files/file.h"
#include "common/base/text/json.h"
#include "common/metrics/metrics.h"

struct plm_metrics_file {
  int descriptor;
  uint64_t size;
  char path[PLM_PATH_SIZE];
};

cJSON *plm_metrics_line(void)
{
  cJSON *line = cJSON_CreateObject();
  if (line != NULL) cJSON_AddNumberToObject(line, "v", 1);
  return line;
}

void plm_metrics_number(cJSON *line, const char *name, double value)
{
  if (!isfinite(value)) {
    cJSON_AddNullToObject(line, name);
    return;
  }
  char text[PLM_JSON_NUMBER_SIZE];
  plm_json_number_text(value, text);
  cJSON_AddRawToObject(line, name, text);
}

void plm_metrics_integer(cJSON *line, const char *name, uint64_t value)
{
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, value);
  cJSON_AddRawToObject(line, name, text);
}

void plm_metrics_string(cJSON *line, const char *name, const char *value)
{
  cJSON_AddStringToObject(line, name, value);
}

/* Finds the number of bytes up to and including the last newline, searching from the end. */
static plm_status whole_lines(int descriptor, const char *path, uint64_t *size,
                              struct plm_error *error)
{
  enum { part = 4096 };
  char buffer[part];
  off_t end = lseek(descriptor, 0, SEEK_END);
  while (end > 0) {
    const off_t begin = end > part ? end - part : 0;
    const size_t size_of_part = (size_t)(end - begin);
    PLM_TRY(plm_file_read_at(descriptor, buffer, size_of_part, (uint64_t)begin, path, error));
    const char *newline = memrchr(buffer, '\n', size_of_part);
    if (newline != NULL) {
      *size = (uint64_t)(begin + (newline - buffer) + 1);
      return PLM_OK;
    }
    end = begin;
  }
  *size = 0;
  return PLM_OK;
}

plm_status plm_metrics_open(const char *path, struct plm_metrics_file **file,
                            struct plm_error *error)
{
  struct plm_metrics_file *opened = plm_alloc_zeroed(1, sizeof *opened);
  snprintf(opened->path, sizeof opened->path, "%s", path);
  plm_status status = PLM_OK;
  uint64_t size;
  opened->descriptor = plm_descriptors_open(path, O_RDWR | O_CREAT | O_APPEND, 0644);
  if (opened->descriptor < 0) status = plm_error_errno(error, "cannot open %s", path);
  if (status == PLM_OK) status = whole_lines(opened->descriptor, path, &size, error);
  if (status == PLM_OK) status = plm_metrics_cut(opened, size, error);
  if (status == PLM_OK) status = plm_parent_sync(path, error);
  if (status != PLM_OK) {
    plm_metrics_close(opened);
    return status;
  }
  *file = opened;
  return PLM_OK;
}

plm_status plm_metrics_write(struct plm_metrics_file *file, cJSON *line, struct plm_error *error)
{
  char *text = plm_json_text(line, false);
  cJSON_Delete(line);
  const size_t length = strlen(text);
  text[length] = '\n'; /* replaces the NUL, so that the line needs only one write */
  const plm_status status =
      plm_file_write_all(file->descriptor, text, length + 1, file->path, error);
  free(text);
  if (status == PLM_OK) file->size += length + 1;
  /* part of the line may have been written, and the next line must not follow it */
  else if (ftruncate(file->descriptor, (off_t)file->size) != 0)
    plm_error_hint(error, "an incomplete line remains at the end of the file");
  return status;
}

plm_status plm_metrics_sync(struct plm_metrics_file *file, struct plm_error *error)
{
  if (fsync(file->descriptor) != 0) return plm_error_errno(error, "cannot fsync %s", file->path);
  return PLM_OK;
}

uint64_t plm_metrics_size(const struct plm_metrics_file *file)
{
  return file->size;
}

plm_status plm_metrics_cut(struct plm_metrics_file *file, uint64_t size, struct plm_error *error)
{
  const off_t end = lseek(file->descriptor, 0, SEEK_END);
  if (end < 0) return plm_error_errno(error, "cannot seek in %s", file->path);
  if ((uint64_t)end < size)
    return plm_error_set(error, PLM_CORRUPT,
                         "%s has %lld bytes, but the checkpoint was written when it had %" PRIu64,
                         file->path, (long long)end, size);
  if ((uint64_t)end != size && ftruncate(file->descriptor, (off_t)size) != 0)
    return plm_error_errno(error, "cannot cut %s", file->path);
  file->size = size;
  return PLM_OK;
}

void plm_metrics_close(struct plm_metrics_file *file)
{
  if (file == NULL) return;
  if (file->descriptor >= 0) close(file->descriptor);
  free(file);
}

const char *plm_metrics_set(const cJSON *line)
{
  return plm_json_string(line, "set", PLM_OWN_SET);
}

bool plm_metrics_is_extra(const cJSON *line)
{
  return strcmp(plm_metrics_set(line), PLM_OWN_SET) != 0;
}

void plm_metrics_subject(const cJSON *line, char *text, size_t size)
{
  const bool extra = plm_metrics_is_extra(line);
  snprintf(text, size, "%s%s%s", extra ? plm_metrics_set(line) : "", extra ? " " : "",
           plm_json_string(line, "split", ""));
}
