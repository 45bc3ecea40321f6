/* Narration on stderr, one line a call: "plm-trainer: warning: text". Results go to stdout, never
 * through here. Thread-safe; a line is written by one write(). */
#ifndef PLM_COMMON_BASE_LOG_H
#define PLM_COMMON_BASE_LOG_H

enum plm_log_level { PLM_LOG_DEBUG, PLM_LOG_INFO, PLM_LOG_WARNING, PLM_LOG_ERROR };

/* Program name (kept by reference) and least level shown; the default is "plm" and INFO.
 * -q is WARNING, -v is DEBUG. */
void plm_log_init(const char *program, enum plm_log_level least);
enum plm_log_level plm_log_least(void);

void plm_log(enum plm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define plm_debug(...) plm_log(PLM_LOG_DEBUG, __VA_ARGS__)
#define plm_info(...) plm_log(PLM_LOG_INFO, __VA_ARGS__)
#define plm_warning(...) plm_log(PLM_LOG_WARNING, __VA_ARGS__)

struct plm_error;
/* An error as narration: "program: error: where: what (hint)". */
void plm_log_error(const struct plm_error *error);

#endif
