/* Locks of the run folder. The kernel holds a lock (open file description), so the lock dies with
 * the process. NAME.lock says who holds it, for people and for the check before a checkpoint is
 * renamed into place. It is an easy file to remove, so each holder also locks what it needs: the
 * trainer and the evaluator lock the metrics that they write, the supervisor the run folder itself.
 * Whoever removes NAME.lock does not let a second one in. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log/log.h"
#include "common/base/numbers/random.h"
#include "common/base/text/strict_json.h"
#include "common/run/run.h"

struct plm_lock {
  int descriptor, second; /* second: of the metrics or of the run folder; -1 for other names */
  uint64_t incarnation;
  char name[64];
  char path[PLM_PATH_SIZE], second_path[PLM_PATH_SIZE];
  pthread_mutex_t mutex; /* checks replace descriptor */
};

enum { LOCK_TEXT_LIMIT = 4096 };

static plm_status lock_path(char path[PLM_PATH_SIZE], const char *run, const char *name,
                            struct plm_error *error)
{
  char file[128];
  snprintf(file, sizeof file, "%s.lock", name);
  return plm_path_join(path, run, file, error);
}

static plm_status read_holder(const char *path, struct plm_lock_holder *holder,
                              struct plm_error *error)
{
  char *text;
  size_t size;
  PLM_TRY(plm_file_read(path, LOCK_TEXT_LIMIT, &text, &size, error));
  cJSON *json = plm_json_line(text);
  free(text);
  const cJSON *host = cJSON_GetObjectItemCaseSensitive(json, "host");
  const cJSON *pid = cJSON_GetObjectItemCaseSensitive(json, "pid");
  const cJSON *incarnation = cJSON_GetObjectItemCaseSensitive(json, "incarnation");
  plm_status status = PLM_OK;
  *holder = (struct plm_lock_holder){0};
  if (cJSON_IsString(host) && cJSON_IsNumber(pid) && cJSON_IsString(incarnation)) {
    snprintf(holder->host, sizeof holder->host, "%s", host->valuestring);
    holder->pid = pid->valueint;
    holder->incarnation = strtoull(incarnation->valuestring, NULL, 16);
  } else {
    status = plm_error_set(error, PLM_FORMAT, "%s does not say who holds it", path);
  }
  cJSON_Delete(json);
  return status;
}

static bool try_lock(int descriptor)
{
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(descriptor, F_OFD_SETLK, &whole) == 0;
}

static plm_status write_holder(struct plm_lock *lock, struct plm_error *error)
{
  char host[256] = "unknown", text[512];
  gethostname(host, sizeof host - 1);
  const int size = snprintf(text, sizeof text,
                            "{\"host\":\"%s\",\"pid\":%ld,\"incarnation\":\"%016" PRIx64 "\"}\n",
                            host, (long)getpid(), lock->incarnation);
  if (ftruncate(lock->descriptor, 0) != 0)
    return plm_error_errno(error, "cannot truncate %s", lock->path);
  return plm_file_write_all(lock->descriptor, text, (size_t)size, lock->path, error);
}

static plm_status taken(const struct plm_lock *lock, struct plm_error *error)
{
  struct plm_lock_holder holder;
  if (errno != EAGAIN && errno != EACCES)
    return plm_error_errno(error, "cannot lock %s", lock->path);
  if (read_holder(lock->path, &holder, NULL) != PLM_OK)
    plm_error_set(error, PLM_BUSY, "another %s has this run", lock->name);
  else
    plm_error_set(error, PLM_BUSY, "the %s of this run is process %d on %s", lock->name, holder.pid,
                  holder.host);
  plm_error_where(error, "%s", lock->path);
  return plm_error_hint(error, "stop it first, or choose another folder with --run DIR");
}

static bool is_supervisor(const struct plm_lock *lock)
{
  return strcmp(lock->name, "supervisor") == 0;
}

/* Opens and locks the second file, if there is one for this name. */
static plm_status lock_second(struct plm_lock *lock, const char *run, struct plm_error *error)
{
  char file[80] = ".";
  const bool folder = is_supervisor(lock);
  if (!folder && strcmp(lock->name, "trainer") != 0 && strcmp(lock->name, "evaluator") != 0)
    return PLM_OK;
  if (!folder) snprintf(file, sizeof file, "%s.jsonl", lock->name);
  PLM_TRY(plm_path_join(lock->second_path, run, file, error));
  lock->second = folder ? open(lock->second_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                        : open(lock->second_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock->second < 0) return plm_error_errno(error, "cannot open %s", lock->second_path);
  /* a folder cannot be locked by fcntl, because it cannot be opened for writing */
  if (folder ? flock(lock->second, LOCK_EX | LOCK_NB) == 0 : try_lock(lock->second)) return PLM_OK;
  if (errno != EAGAIN && errno != EACCES)
    return plm_error_errno(error, "cannot lock %s", lock->second_path);
  plm_error_set(error, PLM_BUSY, "another %s %s, although its %s.lock was removed while it runs",
                lock->name, folder ? "has this run" : "writes this file", lock->name);
  plm_error_where(error, "%s", folder ? run : lock->second_path);
  if (folder) return plm_error_hint(error, "stop it first with `plm-pipeline down`");
  return plm_error_hint(
      error, "find it with `pgrep -a plm-%s` on each host of the run, and stop it", lock->name);
}

static plm_status open_and_lock(struct plm_lock *lock, const char *run, struct plm_error *error)
{
  lock->descriptor = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock->descriptor < 0) return plm_error_errno(error, "cannot open %s", lock->path);
  if (!try_lock(lock->descriptor)) return taken(lock, error);
  PLM_TRY(lock_second(lock, run, error));
  PLM_TRY(plm_random_bytes(&lock->incarnation, sizeof lock->incarnation, error));
  return write_holder(lock, error);
}

plm_status plm_lock_acquire(const char *run, const char *name, struct plm_lock **lock,
                            struct plm_error *error)
{
  struct plm_lock *made = plm_alloc_zeroed(1, sizeof *made);
  made->descriptor = made->second = -1;
  pthread_mutex_init(&made->mutex, NULL);
  snprintf(made->name, sizeof made->name, "%s", name);
  plm_status status = lock_path(made->path, run, name, error);
  if (status == PLM_OK) status = open_and_lock(made, run, error);
  if (status != PLM_OK) {
    plm_lock_release(made);
    return status;
  }
  *lock = made;
  return PLM_OK;
}

/* ---- checks -------------------------------------------------------------------------------- */

/* Whether path still names the open file. An error other than a missing file does not say that it
 * does not: a network file system may be away for a moment. */
static bool lock_names(const char *path, int descriptor)
{
  struct stat named, open_file;
  if (fstat(descriptor, &open_file) != 0) return true;
  if (stat(path, &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return named.st_dev == open_file.st_dev && named.st_ino == open_file.st_ino;
}

/* NAME.lock was removed, but nobody else can take the second lock, so nothing is lost: creates the
 * file again. If another process holds the new file, it is about to find the second one locked, and
 * the next check tries again. */
static plm_status renew(struct plm_lock *lock, struct plm_error *error)
{
  const int descriptor = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", lock->path);
  if (!try_lock(descriptor)) {
    close(descriptor);
    return PLM_OK;
  }
  close(lock->descriptor);
  lock->descriptor = descriptor;
  plm_warning("%s was removed; it was created again, because this %s still %s the run", lock->path,
              lock->name, is_supervisor(lock) ? "has" : "writes");
  return write_holder(lock, error);
}

static plm_status check_files(struct plm_lock *lock, struct plm_error *error)
{
  if (lock->second < 0) return PLM_OK;
  if (!lock_names(lock->second_path, lock->second)) {
    plm_error_set(error, PLM_BUSY,
                  "this file was removed or replaced while the %s writes it, so another %s may "
                  "write the run",
                  lock->name, lock->name);
    plm_error_where(error, "%s", lock->second_path);
    return plm_error_hint(error, "nothing more is written; `plm-pipeline up` resumes the run from "
                                 "its newest checkpoint");
  }
  return lock_names(lock->path, lock->descriptor) ? PLM_OK : renew(lock, error);
}

/* *waits: whether NAME.lock is another process's for a moment (renew), so that its contents do not
 * count. */
static plm_status watch(struct plm_lock *lock, bool *waits, struct plm_error *error)
{
  pthread_mutex_lock(&lock->mutex);
  const plm_status status = check_files(lock, error);
  *waits = lock->second >= 0 && !lock_names(lock->path, lock->descriptor);
  pthread_mutex_unlock(&lock->mutex);
  return status;
}

plm_status plm_lock_watch(struct plm_lock *lock, struct plm_error *error)
{
  bool waits;
  return watch(lock, &waits, error);
}

plm_status plm_lock_check(struct plm_lock *lock, struct plm_error *error)
{
  struct plm_lock_holder holder;
  bool waits;
  PLM_TRY(watch(lock, &waits, error));
  if (waits) return PLM_OK;
  PLM_TRY(read_holder(lock->path, &holder, error));
  if (holder.incarnation != lock->incarnation)
    return plm_error_set(error, PLM_BUSY, "%s was taken over by process %d on %s", lock->path,
                         holder.pid, holder.host);
  return PLM_OK;
}

void plm_lock_release(struct plm_lock *lock)
{
  if (lock == NULL) return;
  /* closing releases the kernel's locks */
  if (lock->descriptor >= 0) close(lock->descriptor);
  if (lock->second >= 0) close(lock->second);
  pthread_mutex_destroy(&lock->mutex);
  free(lock);
}

double plm_lock_age_s(const char *run, const char *name)
{
  char path[PLM_PATH_SIZE];
  const double age_s = lock_path(path, run, name, NULL) == PLM_OK ? plm_file_age_s(path) : NAN;
  return isnan(age_s) ? 0.0 : age_s;
}

plm_status plm_lock_holder(const char *run, const char *name, struct plm_lock_holder *holder,
                           struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  PLM_TRY(lock_path(path, run, name, error));
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return plm_error_errno(error, "cannot open %s", path);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  const int asked = fcntl(descriptor, F_OFD_GETLK, &whole);
  close(descriptor);
  if (asked != 0) return plm_error_errno(error, "cannot query the lock %s", path);
  if (whole.l_type == F_UNLCK) return plm_error_set(error, PLM_NOT_FOUND, "nobody holds %s", path);
  return read_holder(path, holder, error);
}
