/* Texts and exit codes of PLM_STATUS_LIST, and filling struct plm_error. */
#include "common/base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  int exit_code, stage_code;
  const char *text;
} statuses[PLM_STATUS_COUNT] = {
#define PLM_STATUS_ROW(name, exit_code, stage_code, text) {exit_code, stage_code, text},
    PLM_STATUS_LIST(PLM_STATUS_ROW)
#undef PLM_STATUS_ROW
};

const char *plm_status_text(plm_status status)
{
  return (unsigned)status < PLM_STATUS_COUNT ? statuses[status].text : "unknown status";
}

int plm_status_exit_code(plm_status status)
{
  return (unsigned)status < PLM_STATUS_COUNT ? statuses[status].exit_code : 1;
}

int plm_status_stage_code(plm_status status)
{
  return (unsigned)status < PLM_STATUS_COUNT ? statuses[status].stage_code : 1;
}

bool plm_status_may_pass(plm_status status)
{
  return status == PLM_IO || status == PLM_NO_MEMORY || status == PLM_NO_DESCRIPTORS ||
         status == PLM_NO_SPACE;
}

plm_status(plm_error_set)(struct plm_error *error, plm_status status, const char *format, ...)
{
  if (error == NULL) return status;
  char text[sizeof error->what]; /* the arguments may include error->what */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(error->what, text, sizeof text);
  error->status = status;
  error->where[0] = '\0';
  error->hint[0] = '\0';
  return status;
}

static plm_status status_of_errno(int number)
{
  switch (number) {
  case ENOSPC:
  case EDQUOT: return PLM_NO_SPACE;
  case ENOENT: return PLM_NOT_FOUND;
  case ENOMEM: return PLM_NO_MEMORY;
  case EMFILE:
  case ENFILE: return PLM_NO_DESCRIPTORS;
  case EFBIG: return PLM_LIMIT;
  default: return PLM_IO;
  }
}

plm_status(plm_error_errno)(struct plm_error *error, const char *format, ...)
{
  const int number = errno;
  char text[384];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const plm_status status =
      plm_error_set(error, status_of_errno(number), "%s: %s", text, strerror(number));
  if (number != EFBIG) return status;
  plm_error_hint(error, "raise this process's limit on the size of files: ulimit -f unlimited");
  return status;
}

static plm_status status_fill(struct plm_error *error, char *field, size_t size, const char *format,
                              va_list arguments)
{
  vsnprintf(field, size, format, arguments);
  return error->status;
}

plm_status(plm_error_where)(struct plm_error *error, const char *format, ...)
{
  if (error == NULL) return PLM_FAILURE;
  va_list arguments;
  va_start(arguments, format);
  const plm_status status =
      status_fill(error, error->where, sizeof error->where, format, arguments);
  va_end(arguments);
  return status;
}

plm_status(plm_error_hint)(struct plm_error *error, const char *format, ...)
{
  if (error == NULL) return PLM_FAILURE;
  va_list arguments;
  va_start(arguments, format);
  const plm_status status = status_fill(error, error->hint, sizeof error->hint, format, arguments);
  va_end(arguments);
  return status;
}

void plm_assert_failed(const char *condition, const char *file, int line)
{
  fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
  abort();
}
