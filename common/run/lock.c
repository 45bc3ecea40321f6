/* Locks of the run folder. The kernel holds a lock (open file description), so the lock dies with
 * the process. The file says who holds it, for people and for the check before a checkpoint is
 * renamed into place. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/strict_json.h"
#include "common/run/run.h"

struct plm_lock {
  int descriptor;
  uint64_t incarnation;
  char path[PLM_PATH_SIZE];
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

static plm_status open_and_lock(struct plm_lock *lock, const char *name, struct plm_error *error)
{
  lock->descriptor = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock->descriptor < 0) return plm_error_errno(error, "cannot open %s", lock->path);
  if (!try_lock(lock->descriptor)) {
    if (errno != EAGAIN && errno != EACCES)
      return plm_error_errno(error, "cannot lock %s", lock->path);
    struct plm_lock_holder holder;
    if (read_holder(lock->path, &holder, NULL) != PLM_OK)
      plm_error_set(error, PLM_BUSY, "another %s has this run", name);
    else
      plm_error_set(error, PLM_BUSY, "the %s of this run is process %d on %s", name, holder.pid,
                    holder.host);
    plm_error_where(error, "%s", lock->path);
    return plm_error_hint(error, "stop it first, or choose another folder with --run DIR");
  }
  if (getrandom(&lock->incarnation, sizeof lock->incarnation, 0) != sizeof lock->incarnation)
    return plm_error_errno(error, "cannot draw a random incarnation");
  return write_holder(lock, error);
}

plm_status plm_lock_take(const char *run, const char *name, struct plm_lock **lock,
                         struct plm_error *error)
{
  struct plm_lock *taken = calloc(1, sizeof *taken);
  if (taken == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  taken->descriptor = -1;
  plm_status status = lock_path(taken->path, run, name, error);
  if (status == PLM_OK) status = open_and_lock(taken, name, error);
  if (status != PLM_OK) {
    plm_lock_release(taken);
    return status;
  }
  *lock = taken;
  return PLM_OK;
}

plm_status plm_lock_check(const struct plm_lock *lock, struct plm_error *error)
{
  struct plm_lock_holder holder;
  PLM_TRY(read_holder(lock->path, &holder, error));
  if (holder.incarnation != lock->incarnation)
    return plm_error_set(error, PLM_BUSY, "%s was taken over by process %d on %s", lock->path,
                         holder.pid, holder.host);
  return PLM_OK;
}

void plm_lock_release(struct plm_lock *lock)
{
  if (lock == NULL) return;
  if (lock->descriptor >= 0) close(lock->descriptor); /* this releases the kernel's lock */
  free(lock);
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
