/* Messages on stderr, one line for each call: "plm-trainer: warning: text". Results go to stdout
 * instead. Thread-safe: each line is one write(). Everything is made printable (printable.h),
 * because messages quote foreign text. */
#ifndef PLM_COMMON_BASE_LOG_LOG_H
#define PLM_COMMON_BASE_LOG_LOG_H

#include <stddef.h>

enum plm_log_level { PLM_LOG_DEBUG, PLM_LOG_INFO, PLM_LOG_WARNING, PLM_LOG_ERROR };

/* Sets the program's name (kept by reference) and the lowest level that is shown; the default is
 * "plm" and INFO. -q means WARNING, -v means DEBUG. If PLM_LOG_TIMES is in the environment, where
 * the supervisor puts it for log files, each line begins with the time. */
void plm_log_init(const char *program, enum plm_log_level least);
enum plm_log_level plm_log_least(void);

void plm_log(enum plm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define plm_debug(...) plm_log(PLM_LOG_DEBUG, __VA_ARGS__)
#define plm_info(...) plm_log(PLM_LOG_INFO, __VA_ARGS__)
#define plm_warning(...) plm_log(PLM_LOG_WARNING, __VA_ARGS__)

/* The time at the beginning of a line, "2026-11-21T19:10:20.123Z " (UTC). strcmp orders such times.
 */
#define PLM_LOG_TIMES "PLM_LOG_TIMES"
enum { PLM_LOG_TIME_SIZE = 26 }; /* bytes, with the space and the NUL */
void plm_log_time_now(char time[PLM_LOG_TIME_SIZE]);
/* Length of the time with which a line begins, 0 if it has none. */
size_t plm_log_time_length(const char *line);

struct plm_error;
/* Prints an error as one line: "program: error: where: what (hint)". */
void plm_log_error(const struct plm_error *error);
/* Prints the error with which a program ends: "program: where: what\n  hint". */
void plm_error_print(const char *program, const struct plm_error *error);

#endif
