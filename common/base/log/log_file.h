/* Log files of bounded size. The process whose standard error is appended to a log file starts a
 * new one when it has reached its limit: LOG is renamed to LOG.1, LOG.1 to LOG.2 and so on, and the
 * oldest is removed. plm_tail (common/run/log_tail.h) reads across the renames. */
#ifndef PLM_COMMON_BASE_LOG_LOG_FILE_H
#define PLM_COMMON_BASE_LOG_LOG_FILE_H

#include <stdbool.h>

#include "common/base/files/file.h"

enum { PLM_LOG_FILES_KEPT = 4 /* beside the present one */ };

/* The environment variables that name the file that standard error is appended to (the supervisor
 * sets it for its stages), and the size in bytes at which it is rotated (default 16 MiB). */
#define PLM_LOG_FILE "PLM_LOG_FILE"
#define PLM_LOG_BYTES "PLM_LOG_BYTES"

/* Writes "LOG.number" into path, or LOG itself if number is 0. False if it is too long. */
bool plm_log_file_name(char path[PLM_PATH_SIZE], const char *log, unsigned number);

/* From here on plm_log_file_turn watches over this file, to which standard error must be appended.
 * NULL: no file. The path is copied. */
void plm_log_file_set(const char *log);
/* Rotates the file that was set if it has reached its limit, and moves standard error (and standard
 * output, if it is the same file) to the new one. Called before each message. */
void plm_log_file_turn(void);

/* Rotates a log that no process has open, if it has reached its limit. */
void plm_log_file_turn_idle(const char *log);

#endif
