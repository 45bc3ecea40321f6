/* Messages on stderr. */
#include "common/base/log/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log/log_file.h"
#include "common/base/status.h"
#include "common/base/text/printable.h"

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
  char message[2048], line[2 * sizeof message], time[PLM_LOG_TIME_SIZE] = "";
  if (with_times) plm_log_time_now(time);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  size_t used = (size_t)snprintf(line, 256, "%s%.100s: %s", time, program_name, labels[level]);
  plm_printable(line + used, sizeof line - used - 1, message, PLM_PRINTABLE_LINES);
  used += strlen(line + used);
  line[used++] = '\n';
  plm_log_file_turn();
  ssize_t ignored = write(STDERR_FILENO, line, used);
  (void)ignored; /* if stderr is gone, this cannot be reported */
}

/* The fields of an error quote foreign text, so none of them may begin another line. */
struct printable_error {
  char what[2 * sizeof((struct plm_error *)0)->what];
  char where[2 * sizeof((struct plm_error *)0)->where];
  char hint[2 * sizeof((struct plm_error *)0)->hint];
};

static struct printable_error printable(const struct plm_error *error)
{
  struct printable_error made;
  const char *what = error->what[0] != '\0' ? error->what : plm_status_text(error->status);
  plm_printable(made.what, sizeof made.what, what, PLM_PRINTABLE_LINE);
  plm_printable(made.where, sizeof made.where, error->where, PLM_PRINTABLE_LINE);
  plm_printable(made.hint, sizeof made.hint, error->hint, PLM_PRINTABLE_LINE);
  return made;
}

void plm_log_error(const struct plm_error *error)
{
  const struct printable_error made = printable(error);
  plm_log(PLM_LOG_ERROR, "%s%s%s%s%s%s", made.where, made.where[0] != '\0' ? ": " : "", made.what,
          made.hint[0] != '\0' ? " (" : "", made.hint, made.hint[0] != '\0' ? ")" : "");
}

void plm_error_print(const char *program, const struct plm_error *error)
{
  const struct printable_error made = printable(error);
  fprintf(stderr, "%s: %s%s%s\n", program, made.where, made.where[0] != '\0' ? ": " : "",
          made.what);
  if (made.hint[0] != '\0') fprintf(stderr, "  %s\n", made.hint);
}
