/* Handlers of SIGBUS, SIGSEGV and SIGFPE during reads of a corpus: see corpus_guard.h. */
#include "common/corpus/corpus_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/map_guard.h"

static _Thread_local const char *volatile guarded_path;
static const int signals[] = {SIGBUS, SIGSEGV, SIGFPE};
enum { SIGNAL_COUNT = sizeof signals / sizeof signals[0] };
static struct sigaction previous[SIGNAL_COUNT];

_Noreturn void plm_corpus_guard_die(const char *path)
{
  /* Signal handlers call this, so it may use only write and _exit. */
  static const char message[] = "error: corpus file changed or unreadable: ";
  const bool told = write(STDERR_FILENO, message, sizeof message - 1) > 0 &&
                    write(STDERR_FILENO, path, strlen(path)) > 0 &&
                    write(STDERR_FILENO, "\n", 1) > 0;
  (void)told; /* there is no other way to report it */
  _exit(plm_guard_exit_code);
}

static void corpus_guard_handle(int number, siginfo_t *information, void *context)
{
  (void)information, (void)context;
  if (guarded_path != NULL) plm_corpus_guard_die(guarded_path);
  /* Not during a read: restore the previous handler; the instruction then runs again. */
  for (int i = 0; i < SIGNAL_COUNT; i++)
    if (signals[i] == number) sigaction(number, &previous[i], NULL);
}

static void corpus_guard_install(int i)
{
  struct sigaction action = {.sa_sigaction = corpus_guard_handle,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK},
                   current;
  sigemptyset(&action.sa_mask);
  sigaction(signals[i], NULL, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == corpus_guard_handle) return;
  previous[i] = current;
  sigaction(signals[i], &action, NULL);
}

void plm_corpus_guard_install(void)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < SIGNAL_COUNT; i++) corpus_guard_install(i);
  pthread_mutex_unlock(&lock);
}

void plm_corpus_guard_enter(const char *path)
{
  guarded_path = path;
  __asm__ volatile("" ::: "memory"); /* the compiler must not move reads of the map before this */
}

void plm_corpus_guard_leave(void)
{
  __asm__ volatile("" ::: "memory");
  guarded_path = NULL;
}
