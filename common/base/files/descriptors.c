/* The reserve of descriptors, one for the process. */
#include "common/base/files/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { OPEN_TRIES = 100, OPEN_PAUSE_MS = 50 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int held[PLM_DESCRIPTORS_RESERVED];
static int held_count;
static unsigned lent;
static bool wanted;

void plm_descriptors_raise(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit); /* the present limit has to do */
}

static void descriptors_fill(void)
{
  while (held_count < PLM_DESCRIPTORS_RESERVED) {
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return; /* the next call tries again */
    held[held_count++] = descriptor;
  }
}

void plm_descriptors_reserve(void)
{
  pthread_mutex_lock(&mutex);
  wanted = true;
  if (lent == 0) descriptors_fill();
  pthread_mutex_unlock(&mutex);
}

void plm_descriptors_lend(void)
{
  pthread_mutex_lock(&mutex);
  lent++;
  while (held_count > 0) close(held[--held_count]);
  pthread_mutex_unlock(&mutex);
}

void plm_descriptors_reclaim(void)
{
  pthread_mutex_lock(&mutex);
  lent--;
  if (lent == 0 && wanted) descriptors_fill();
  pthread_mutex_unlock(&mutex);
}

static bool none_is_left(int descriptor)
{
  return descriptor < 0 && (errno == EMFILE || errno == ENFILE);
}

static bool reserve_is_wanted(void)
{
  pthread_mutex_lock(&mutex);
  const bool is_wanted = wanted;
  pthread_mutex_unlock(&mutex);
  return is_wanted;
}

int plm_descriptors_open(const char *path, int flags, mode_t mode)
{
  int descriptor = open(path, flags | O_CLOEXEC, mode);
  for (int i = 0; i < OPEN_TRIES && none_is_left(descriptor) && reserve_is_wanted(); i++) {
    if (i > 0) (void)nanosleep(&(struct timespec){.tv_nsec = OPEN_PAUSE_MS * 1000000L}, NULL);
    plm_descriptors_lend();
    descriptor = open(path, flags | O_CLOEXEC, mode);
    const int cause = errno;
    plm_descriptors_reclaim();
    errno = cause;
  }
  return descriptor;
}
