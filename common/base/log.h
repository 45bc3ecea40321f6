/* Narration on stderr, one line a call: "plm-trainer: warning: text". Results go to stdout, never
 * through here. Thread-safe; a line is written by one write(). */
#ifndef PLM_COMMON_BASE_LOG_H
#define PLM_COMMON_BASE_LOG_H

#include <stddef.h>

enum plm_log_level { PLM_LOG_DEBUG, PLM_LOG_INFO, PLM_LOG_WARNING, PLM_LOG_ERROR };

/* Program name (kept by reference) and least level shown; the default is "plm" and INFO.
 * -q is WARNING, -v is DEBUG. With PLM_LOG_TIMES in the environment, as the supervisor sets it for
 * log files, lines begin with their time. */
void plm_log_init(const char *program, enum plm_log_level least);
enum plm_log_level plm_log_least(void);

void plm_log(enum plm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define plm_debug(...) plm_log(PLM_LOG_DEBUG, __VA_ARGS__)
#define plm_info(...) plm_log(PLM_LOG_INFO, __VA_ARGS__)
#define plm_warning(...) plm_log(PLM_LOG_WARNING, __VA_ARGS__)

/* The time before a line: "2026-11-21T19:10:20.123Z " (UTC). Compared as text, earlier is less. */
#define PLM_LOG_TIMES "PLM_LOG_TIMES"
enum { PLM_LOG_TIME_SIZE = 26 }; /* with the space and the NUL */
void plm_log_time_now(char time[PLM_LOG_TIME_SIZE]);
/* Bytes of the time that the line begins with; 0: none. */
size_t plm_log_time_length(const char *line);

struct plm_error;
/* An error as narration: "program: error: where: what (hint)". */
void plm_log_error(const struct plm_error *error);

#endif
