/* Rotating log files. Nothing here reports errors: there is no other place for messages. */
#include "common/base/log/log_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned long long default_bytes = 16 << 20;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char watched[PLM_PATH_SIZE]; /* "": none */

bool plm_log_file_name(char path[PLM_PATH_SIZE], const char *log, unsigned number)
{
  const int size = number == 0 ? snprintf(path, PLM_PATH_SIZE, "%s", log)
                               : snprintf(path, PLM_PATH_SIZE, "%s.%u", log, number);
  return size > 0 && size < PLM_PATH_SIZE;
}

static unsigned long long limit_bytes(void)
{
  const char *text = getenv(PLM_LOG_BYTES);
  const unsigned long long bytes = text != NULL ? strtoull(text, NULL, 10) : 0;
  return bytes > 0 ? bytes : default_bytes;
}

static void rename_all(const char *log)
{
  char from[PLM_PATH_SIZE], to[PLM_PATH_SIZE];
  for (unsigned number = PLM_LOG_FILES_KEPT; number > 0; number--) {
    if (plm_log_file_name(from, log, number - 1) && plm_log_file_name(to, log, number))
      (void)rename(from, to); /* it may be missing */
  }
}

void plm_log_file_set(const char *log)
{
  pthread_mutex_lock(&mutex);
  if (log == NULL || !plm_log_file_name(watched, log, 0)) watched[0] = '\0';
  pthread_mutex_unlock(&mutex);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static void log_file_turn(void)
{
  struct stat error, output, named;
  if (fstat(STDERR_FILENO, &error) != 0 || !S_ISREG(error.st_mode)) return;
  const bool ours = stat(watched, &named) == 0 && same_file(&error, &named);
  if (ours && (unsigned long long)error.st_size < limit_bytes()) return;
  if (ours) rename_all(watched); /* otherwise another process has done it */
  const bool both = fstat(STDOUT_FILENO, &output) == 0 && same_file(&error, &output);
  const int fresh = open(watched, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fresh < 0) return;
  dup2(fresh, STDERR_FILENO);
  if (both) dup2(fresh, STDOUT_FILENO);
  close(fresh);
}

void plm_log_file_turn(void)
{
  pthread_mutex_lock(&mutex);
  if (watched[0] != '\0') log_file_turn();
  pthread_mutex_unlock(&mutex);
}

void plm_log_file_turn_idle(const char *log)
{
  struct stat information;
  if (stat(log, &information) == 0 && (unsigned long long)information.st_size >= limit_bytes())
    rename_all(log);
}
