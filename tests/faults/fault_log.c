/* Counting, failing, logging and cutting the power; shared by all processes of a run. */
#include "tests/faults/fault_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* In a file that all processes map. */
struct shared {
  pthread_mutex_t mutex;
  long counted;
  long kept; /* names in FILE.kept */
  int ready;
  int cut; /* the power is off: the next caller dies */
};

static struct {
  char below[PATH_MAX], log[PATH_MAX / 2];
  const char *program, *call;
  long at;
  int error;
  bool all, cuts, now;
  int descriptor; /* of the log */
  struct shared *shared;
} faults;

static __thread bool inside;

bool fault_inside(void)
{
  return inside || faults.shared == NULL;
}

static void give_up(const char *what)
{
  dprintf(STDERR_FILENO, "faults.so: %s: %s\n", what, strerror(errno));
  abort();
}

/* ---- paths --------------------------------------------------------------------------------- */

static bool relative_to_folder(const char *path, char relative[PATH_MAX])
{
  const size_t length = strlen(faults.below);
  if (strncmp(path, faults.below, length) != 0) return false;
  if (path[length] != '/' && path[length] != '\0') return false;
  snprintf(relative, PATH_MAX, "%s", path[length] == '\0' ? "." : path + length + 1);
  return true;
}

/* The real path of the folder that holds PATH, and PATH's own name. */
static bool resolve_parent(const char *path, char resolved[PATH_MAX])
{
  char copy[PATH_MAX], parent[PATH_MAX];
  if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy) return false;
  size_t length = strlen(copy);
  while (length > 1 && copy[length - 1] == '/') copy[--length] = '\0';
  char *slash = strrchr(copy, '/');
  const char *name = slash == NULL ? copy : slash + 1;
  if (slash != NULL) *slash = '\0';
  if (realpath(slash == NULL ? "." : slash == copy ? "/" : copy, parent) == NULL) return false;
  return snprintf(resolved, PATH_MAX, "%s/%s", parent, name) < PATH_MAX;
}

bool fault_path_is_watched(int directory, const char *path, bool follow, char relative[PATH_MAX])
{
  char whole[PATH_MAX], resolved[PATH_MAX];
  const int before = errno;
  if (directory != AT_FDCWD && path[0] != '/') {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t length = readlink(link, whole, sizeof whole - 1);
    if (length < 0) return false;
    snprintf(whole + length, sizeof whole - (size_t)length, "/%s", path);
    path = whole;
  }
  const bool found = (follow && realpath(path, resolved) != NULL) || resolve_parent(path, resolved);
  errno = before;
  return found && relative_to_folder(resolved, relative);
}

bool fault_descriptor_is_watched(int descriptor, char relative[PATH_MAX])
{
  char link[64], path[PATH_MAX];
  const int before = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  errno = before;
  if (length < 0) return false;
  path[length] = '\0';
  return relative_to_folder(path, relative);
}

/* ---- the log ------------------------------------------------------------------------------- */

static void write_line(const char *line, int length)
{
  if (write(faults.descriptor, line, (size_t)length) != length) give_up("cannot write the log");
}

static void key_of(int descriptor, const struct stat *information, char key[64])
{
  long generation = 0;
  if (ioctl(descriptor, FS_IOC_GETVERSION, &generation) != 0) {
    struct statx more = {0};
    if (statx(descriptor, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0)
      generation = (long)(1000000000 * more.stx_btime.tv_sec + more.stx_btime.tv_nsec);
  }
  snprintf(key, 64, "%lx.%lx", (long)information->st_ino, generation);
}

/* Writes NAME KIND KEY MODE TARGET of an entry, or of the folder itself. Returns false if it is
 * gone or special. */
static bool describe(int directory, const char *name, char kind[2], char line[2 * PATH_MAX])
{
  struct stat information;
  char key[64] = "-", target[PATH_MAX] = "";
  if (fstatat(directory, name, &information, AT_SYMLINK_NOFOLLOW) != 0) return false;
  kind[0] = S_ISREG(information.st_mode)   ? 'f'
            : S_ISDIR(information.st_mode) ? 'd'
            : S_ISLNK(information.st_mode) ? 'l'
                                           : '?';
  kind[1] = '\0';
  if (kind[0] == '?') return false;
  if (kind[0] == 'l') {
    const ssize_t length = readlinkat(directory, name, target, sizeof target - 1);
    if (length < 0) return false;
    target[length] = '\0';
  } else {
    const int opened = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0) return false;
    key_of(opened, &information, key);
    close(opened);
  }
  snprintf(line, 2 * PATH_MAX, "%s\t%s\t%s\t%o\t%s\n", name, kind, key, information.st_mode & 07777,
           target);
  return true;
}

static bool is_entry(const char *name)
{
  return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static void copy_folder(int from, int to)
{
  DIR *directory = fdopendir(from);
  if (directory == NULL) give_up("cannot list a folder");
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    char kind[2], line[2 * PATH_MAX];
    if (!is_entry(entry->d_name) || !describe(dirfd(directory), entry->d_name, kind, line))
      continue;
    const size_t length = strlen(line);
    if (write(to, line, length) != (ssize_t)length) give_up("cannot keep a folder");
  }
  closedir(directory);
}

static void copy_file(int from, int to)
{
  static char buffer[1 << 16]; /* guarded by the mutex */
  for (ssize_t got; (got = read(from, buffer, sizeof buffer)) != 0;)
    if (got < 0 || write(to, buffer, (size_t)got) != got) give_up("cannot keep a file");
}

void fault_keep(int descriptor)
{
  struct stat information;
  char link[64], kept[PATH_MAX], line[256], key[64];
  if (fstat(descriptor, &information) != 0 || information.st_nlink == 0) return;
  const bool is_folder = S_ISDIR(information.st_mode);
  if (!is_folder && !S_ISREG(information.st_mode)) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor); /* it may be open only for writing */
  const int from = open(link, O_RDONLY | O_CLOEXEC);
  if (from < 0) give_up("cannot open what was synced");
  const long name = ++faults.shared->kept;
  snprintf(kept, sizeof kept, "%s.kept/%ld", faults.log, name);
  const int to = open(kept, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (to < 0) give_up("cannot create a kept file");
  key_of(from, &information, key);
  if (is_folder) {
    copy_folder(from, to); /* closes it */
  } else {
    copy_file(from, to);
    close(from);
  }
  close(to);
  write_line(line,
             snprintf(line, sizeof line, "S\t%s\t%c\t%ld\n", key, is_folder ? 'd' : 'f', name));
}

/* ---- the whole folder ---------------------------------------------------------------------- */

/* Everything that is there at the start is durable; at the cut, the log gets the names. */
static void walk(const char *relative, bool keeps)
{
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", faults.below, relative);
  DIR *directory = opendir(path);
  if (directory == NULL && errno == ENOENT && strcmp(relative, ".") != 0)
    return; /* another thread or process has removed it since it was listed */
  if (directory == NULL) give_up("cannot walk through the folder");
  if (keeps) fault_keep(dirfd(directory));
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    char kind[2], line[2 * PATH_MAX], below[PATH_MAX], whole[3 * PATH_MAX];
    if (!is_entry(entry->d_name) || !describe(dirfd(directory), entry->d_name, kind, line))
      continue;
    if (strcmp(relative, ".") == 0)
      snprintf(below, sizeof below, "%s", entry->d_name);
    else if (snprintf(below, sizeof below, "%s/%s", relative, entry->d_name) >= PATH_MAX)
      continue;
    if (!keeps)
      write_line(whole, snprintf(whole, sizeof whole, "N\t%.*s%s",
                                 (int)(strlen(below) - strlen(entry->d_name)), below, line));
    if (kind[0] == 'd') walk(below, keeps);
    if (kind[0] == 'f' && keeps) {
      const int opened = openat(dirfd(directory), entry->d_name, O_RDONLY | O_CLOEXEC);
      if (opened >= 0) fault_keep(opened);
      close(opened);
    }
  }
  closedir(directory);
}

static _Noreturn void die(void)
{
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static _Noreturn void cut_power(void)
{
  walk(".", false);
  faults.shared->cut = 1;
  die(); /* the mutex is robust: the next process to lock it sees `cut` */
}

/* ---- calls --------------------------------------------------------------------------------- */

static void lock(void)
{
  if (pthread_mutex_lock(&faults.shared->mutex) == EOWNERDEAD)
    pthread_mutex_consistent(&faults.shared->mutex);
  if (faults.shared->cut) die();
}

static void log_call(const struct fault_call *call, const char *outcome)
{
  char line[3 * PATH_MAX];
  write_line(line, snprintf(line, sizeof line, "C\t%ld\t%s\t%ld\t%s\t%s\t%s\t%s\n", call->number,
                            program_invocation_short_name, (long)getpid(), call->name, call->path,
                            call->other, outcome));
}

static bool is_counted(const struct fault_call *call)
{
  char whole[PATH_MAX + 32];
  if (faults.program != NULL && strcmp(program_invocation_short_name, faults.program) != 0)
    return false;
  if (faults.call == NULL) return true;
  snprintf(whole, sizeof whole, "%s:%s", call->name, call->path);
  return fnmatch(faults.call, whole, 0) == 0;
}

void fault_begin(struct fault_call *call)
{
  const int before = errno;
  inside = true;
  lock();
  if (is_counted(call)) call->number = ++faults.shared->counted;
  if (call->number != 0 && (faults.all || call->number == faults.at)) {
    if (faults.cuts) {
      log_call(call, "cut");
      cut_power();
    }
    call->error = faults.error;
  }
  errno = before;
}

void fault_end(const struct fault_call *call, bool failed)
{
  const int before = errno;
  log_call(call, call->half ? "half" : failed ? strerrorname_np(before) : "ok");
  pthread_mutex_unlock(&faults.shared->mutex);
  inside = false;
  errno = before;
}

/* ---- the start ----------------------------------------------------------------------------- */

static void map_shared(void)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s.state", faults.log);
  int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool first = descriptor >= 0;
  if (!first) descriptor = open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0 || (first && ftruncate(descriptor, sizeof *faults.shared) != 0))
    give_up("cannot create the state");
  struct stat information = {0};
  while (fstat(descriptor, &information) == 0 && information.st_size == 0) usleep(1000);
  struct shared *shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (shared == MAP_FAILED) give_up("cannot map the state");
  close(descriptor);
  faults.shared = shared;
  if (first) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &attributes);
    snprintf(path, sizeof path, "%s.kept", faults.log);
    if (mkdir(path, 0700) != 0) give_up("cannot create the folder of kept files");
    walk(".", true);
    __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
  }
  while (!__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE)) usleep(1000);
}

__attribute__((constructor)) static void start(void)
{
  const char *below = getenv("PLM_FAULTS_BELOW"), *log = getenv("PLM_FAULTS_LOG");
  const char *at = getenv("PLM_FAULTS_AT"), *how = getenv("PLM_FAULTS_HOW");
  if (below == NULL || log == NULL) return;
  inside = true;
  snprintf(faults.below, sizeof faults.below, "%s", below);
  snprintf(faults.log, sizeof faults.log, "%s", log);
  faults.program = getenv("PLM_FAULTS_PROGRAM");
  faults.call = getenv("PLM_FAULTS_CALL");
  faults.now = at != NULL && strcmp(at, "now") == 0;
  faults.all = at != NULL && strcmp(at, "all") == 0;
  faults.at = at == NULL || faults.now || faults.all ? 0 : atol(at);
  faults.cuts = how != NULL && strcmp(how, "cut") == 0;
  for (int number = 1; how != NULL && number < 134; number++)
    if (strerrorname_np(number) != NULL && strcmp(strerrorname_np(number), how) == 0)
      faults.error = number;
  faults.descriptor = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (faults.descriptor < 0) give_up("cannot open the log");
  /* out of the way of tests that close or count low descriptors */
  const int high = fcntl(faults.descriptor, F_DUPFD_CLOEXEC, 900);
  if (high >= 0) {
    close(faults.descriptor);
    faults.descriptor = high;
  }
  map_shared();
  if (faults.now) {
    lock();
    cut_power();
  }
  inside = false;
}
