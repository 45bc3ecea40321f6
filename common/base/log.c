/* Messages on stderr. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log_file.h"
#include "common/base/status.h"

static const char *program_name = "plm";
static enum plm_log_level least_level = PLM_LOG_INFO;
static bool with_times;

void plm_log_time_now(char time[PLM_LOG_TIME_SIZE])
{
  struct timespec now;
  struct tm parts;
  char seconds[32];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &parts);
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(time, PLM_LOG_TIME_SIZE, "%.19s.%03dZ ", seconds, (int)(now.tv_nsec / 1000000));
}

size_t plm_log_time_length(const char *line)
{
  static const char form[] = "0000-00-00T00:00:00.000Z ";
  for (size_t i = 0; i < sizeof form - 1; i++) {
    const bool digit = line[i] >= '0' && line[i] <= '9';
    if (form[i] == '0' ? !digit : line[i] != form[i]) return 0;
  }
  return sizeof form - 1;
}

void plm_log_init(const char *program, enum plm_log_level least)
{
  program_name = program;
  with_times = getenv(PLM_LOG_TIMES) != NULL;
  plm_log_file_set(getenv(PLM_LOG_FILE));
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
  char line[2048], time[PLM_LOG_TIME_SIZE] = "";
  if (with_times) plm_log_time_now(time);
  int used = snprintf(line, sizeof line, "%s%s: %s", time, program_name, labels[level]);
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
  va_end(arguments);
  if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
  line[used++] = '\n';
  plm_log_file_turn();
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)used);
  (void)ignored; /* if stderr is gone, this cannot be reported */
}

void plm_log_error(const struct plm_error *error)
{
  plm_log(PLM_LOG_ERROR, "%s%s%s%s%s%s", error->where, error->where[0] != '\0' ? ": " : "",
          error->what, error->hint[0] != '\0' ? " (" : "", error->hint,
          error->hint[0] != '\0' ? ")" : "");
}
