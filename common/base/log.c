/* Log lines on stderr. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/status.h"

static const char *program_name = "plm";
static enum plm_log_level least_level = PLM_LOG_INFO;

void plm_log_init(const char *program, enum plm_log_level least)
{
  program_name = program;
  least_level = least;
}

enum plm_log_level plm_log_least(void)
{
  return least_level;
}

void plm_log(enum plm_log_level level, const char *format, ...)
{
  static const char *const labels[] = {"debug: ", "", "warning: ", "error: "};
  if (level < least_level) return;
  char line[2048];
  int used = snprintf(line, sizeof line, "%s: %s", program_name, labels[level]);
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
  va_end(arguments);
  if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
  line[used++] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)used);
  (void)ignored; /* nowhere is left to report that stderr is gone */
}

void plm_log_error(const struct plm_error *error)
{
  plm_log(PLM_LOG_ERROR, "%s%s%s%s%s%s", error->where, error->where[0] != '\0' ? ": " : "",
          error->what, error->hint[0] != '\0' ? " (" : "", error->hint,
          error->hint[0] != '\0' ? ")" : "");
}
