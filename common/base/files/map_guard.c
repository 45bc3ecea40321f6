/* The registered maps, and the handler of SIGBUS that looks for the address among them. */
#include "common/base/files/map_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MAPS = 8192, PASSES = 4 };

/* The handler reads the table while other threads change it. An entry counts while begin is set: it
 * is set last and cleared first. */
static struct map {
  uintptr_t begin, end; /* begin is atomic; 0: free */
  const char *path;
} maps[MAPS];
static size_t used; /* atomic; entries at and beyond this were never used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;
int plm_guard_exit_code = 1;

/* Signal handlers call this, so it may use only write and _exit. */
static _Noreturn void die(const char *path)
{
  static const char message[] = " changed or became unreadable while it was read\n";
  const bool told = write(STDERR_FILENO, "error: ", 7) > 0 &&
                    write(STDERR_FILENO, path, strlen(path)) > 0 &&
                    write(STDERR_FILENO, message, sizeof message - 1) > 0;
  (void)told; /* there is no other way to report it */
  _exit(plm_guard_exit_code);
}

static void map_guard_handle(int number, siginfo_t *information, void *context)
{
  (void)context;
  const uintptr_t address = (uintptr_t)information->si_addr;
  const size_t count = __atomic_load_n(&used, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < count; i++) {
    const uintptr_t begin = __atomic_load_n(&maps[i].begin, __ATOMIC_ACQUIRE);
    if (begin != 0 && address >= begin && address < maps[i].end) die(maps[i].path);
  }
  /* Not one of ours: the instruction runs again, with the handler that was there before. If that
   * one puts this one back, the signal must end the process all the same. */
  static volatile sig_atomic_t passes;
  if (++passes < PASSES)
    sigaction(number, &previous, NULL);
  else
    signal(number, SIG_DFL);
}

static void map_guard_install(void)
{
  struct sigaction action = {.sa_sigaction = map_guard_handle, .sa_flags = SA_SIGINFO | SA_ONSTACK},
                   current;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, NULL, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == map_guard_handle) return;
  previous = current;
  sigaction(SIGBUS, &action, NULL);
}

void plm_map_guard_add(const void *begin, size_t size, const char *path)
{
  pthread_mutex_lock(&lock);
  map_guard_install();
  size_t i = 0;
  while (i < used && maps[i].begin != 0) i++;
  if (i < MAPS) {
    maps[i].end = (uintptr_t)begin + size;
    maps[i].path = path;
    __atomic_store_n(&maps[i].begin, (uintptr_t)begin, __ATOMIC_RELEASE);
    if (i == used) __atomic_store_n(&used, i + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
}

void plm_map_guard_remove(const void *begin)
{
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < used; i++)
    if (maps[i].begin == (uintptr_t)begin) {
      __atomic_store_n(&maps[i].begin, 0, __ATOMIC_RELEASE);
      break;
    }
  pthread_mutex_unlock(&lock);
}
