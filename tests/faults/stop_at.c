/* stop_at.so: a preloaded library with which a program stops itself (SIGSTOP) before a given call.
 * A test can then kill or signal it there, however fast or slow the machine is.
 *
 *   PLM_STOP_AT    CALL:PATTERN#N: the N-th CALL (pwrite, write, mkdir, rename, renameat2) about a
 *                  path that matches PATTERN (fnmatch; of a rename, the new name), or
 *                  "exchange:*#N": after the beginning of the N-th all-to-all exchange with other
 *                  ranks. #N,M: at both
 *   PLM_STOP_HOLDING  text. If it is set, only a rename of a file that holds it counts, or a write
 *                  of bytes that hold it.
 *   PLM_STOP_WAIT  if set, the program does not stop itself but waits there for a signal that it
 *                  handles; its name is "waiting" meanwhile. This is for tests of something that
 *                  continues stopped processes before it signals them.
 *   PLM_STOP_UNTIL  a path. If it is set, only the calling thread waits there, until something has
 *                   this path. The program's other threads continue.
 *   PLM_STOP_TICK  if set, each counted call advances CLOCK_MONOTONIC by a second, so that whatever
 *                  is done at intervals is due after each */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int exchange_function(const void *, int, void *, void *, int, void *, void *, void *);

/* The next function of this name, as `real`. */
#define REAL(name)               \
  static __typeof__(name) *real; \
  if (real == NULL) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static struct {
  char call[16], pattern[PATH_MAX];
  long at, then; /* then: 0 if there is only one */
  bool waits, ticks;
  char until[PATH_MAX]; /* empty: not asked for */
  char holding[256];    /* likewise */
} stop;
static long counted;

__attribute__((constructor)) static void read_environment(void)
{
  const char *at = getenv("PLM_STOP_AT");
  const char *colon = at == NULL ? NULL : strchr(at, ':');
  const char *mark = at == NULL ? NULL : strrchr(at, '#');
  if (colon == NULL || mark == NULL || mark < colon) return;
  snprintf(stop.call, sizeof stop.call, "%.*s", (int)(colon - at), at);
  snprintf(stop.pattern, sizeof stop.pattern, "%.*s", (int)(mark - colon - 1), colon + 1);
  char *end;
  stop.at = strtol(mark + 1, &end, 10);
  stop.then = *end == ',' ? strtol(end + 1, NULL, 10) : 0;
  stop.waits = getenv("PLM_STOP_WAIT") != NULL;
  stop.ticks = getenv("PLM_STOP_TICK") != NULL;
  const char *until = getenv("PLM_STOP_UNTIL");
  snprintf(stop.until, sizeof stop.until, "%s", until == NULL ? "" : until);
  const char *holding = getenv("PLM_STOP_HOLDING");
  snprintf(stop.holding, sizeof stop.holding, "%s", holding == NULL ? "" : holding);
}

/* A signal that comes between the change of name and the wait ends the wait. */
static void wait_for_signal(void)
{
  char name[16] = {0};
  sigset_t stop_signals, mask;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGUSR1);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, &mask);
  prctl(PR_GET_NAME, name);
  prctl(PR_SET_NAME, "waiting");
  sigsuspend(&mask);
  prctl(PR_SET_NAME, name);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void wait_for_path(void)
{
  const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
  while (access(stop.until, F_OK) != 0) nanosleep(&pause, NULL);
}

static void before(const char *call, const char *path)
{
  if (strcmp(call, stop.call) != 0 || fnmatch(stop.pattern, path, 0) != 0) return;
  const long count = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
  if (count != stop.at && count != stop.then) return;
  if (stop.until[0] != '\0')
    wait_for_path();
  else if (stop.waits)
    wait_for_signal();
  else
    raise(SIGSTOP);
}

static void before_descriptor(const char *call, int descriptor)
{
  char link[64], path[PATH_MAX];
  const int error = errno;
  if (strcmp(call, stop.call) != 0) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length > 0) {
    path[length] = '\0';
    before(call, path);
  }
  errno = error;
}

/* Whether the text that is asked for is among some bytes, or none is asked for. */
static bool hold(const void *bytes, size_t size)
{
  return memmem(bytes, size, stop.holding, strlen(stop.holding)) != NULL;
}

/* The same for the first bytes of a file. */
static bool holds(const char *path)
{
  char bytes[4096];
  if (stop.holding[0] == '\0') return true;
  const int error = errno, file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? 0 : read(file, bytes, sizeof bytes);
  if (file >= 0) close(file);
  errno = error;
  return size > 0 && hold(bytes, (size_t)size);
}

#pragma GCC visibility push(default) /* everything from here on is found before the C library's */

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
  REAL(pwrite);
  before_descriptor("pwrite", descriptor);
  return real(descriptor, bytes, size, offset);
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
  REAL(write);
  if (hold(bytes, size)) before_descriptor("write", descriptor);
  return real(descriptor, bytes, size);
}

int mkdir(const char *path, mode_t mode)
{
  REAL(mkdir);
  before("mkdir", path);
  return real(path, mode);
}

int rename(const char *from, const char *to)
{
  REAL(rename);
  if (strcmp(stop.call, "rename") == 0 && holds(from)) before("rename", to);
  return real(from, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
  REAL(renameat2);
  before("renameat2", to);
  return real(from_folder, from, to_folder, to, flags);
}

exchange_function MPI_Ialltoall;
/* With the types of Open MPI, whose handles are pointers; this library is built without mpi.h. */
int MPI_Ialltoall(const void *from, int sent, void *sent_type, void *to, int received,
                  void *received_type, void *comm, void *request)
{
  exchange_function *real;
  *(void **)&real = dlsym(RTLD_DEFAULT, "PMPI_Ialltoall");
  const int result = real(from, sent, sent_type, to, received, received_type, comm, request);
  before("exchange", "");
  return result;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
  REAL(clock_gettime);
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_MONOTONIC && stop.ticks)
    time->tv_sec += __atomic_load_n(&counted, __ATOMIC_SEQ_CST);
  return result;
}
