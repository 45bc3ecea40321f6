/* SIGBUS and SIGSEGV inside reads of a corpus. */
#include "common/corpus/corpus_guard.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static _Thread_local const char *volatile guarded_path;
static struct sigaction previous_bus, previous_segment;

_Noreturn void plm_corpus_guard_die(const char *path)
{
  /* a signal handler: write() alone */
  static const char message[] = "error: corpus file changed or unreadable: ";
  ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
  ignored = write(STDERR_FILENO, path, strlen(path));
  ignored = write(STDERR_FILENO, "\n", 1);
  (void)ignored;
  _exit(1);
}

static void handle(int number, siginfo_t *information, void *context)
{
  (void)information, (void)context;
  if (guarded_path != NULL) plm_corpus_guard_die(guarded_path);
  /* not ours: the instruction runs again under whatever stood here before */
  sigaction(number, number == SIGBUS ? &previous_bus : &previous_segment, NULL);
}

static void install(int number, struct sigaction *previous)
{
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK}, current;
  sigemptyset(&action.sa_mask);
  sigaction(number, NULL, &current);
  if ((current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == handle) return;
  *previous = current;
  sigaction(number, &action, NULL);
}

void plm_corpus_guard_install(void)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  install(SIGBUS, &previous_bus);
  install(SIGSEGV, &previous_segment);
  pthread_mutex_unlock(&lock);
}

void plm_corpus_guard_enter(const char *path)
{
  guarded_path = path;
  __asm__ volatile("" ::: "memory"); /* no read of the map moves out */
}

void plm_corpus_guard_leave(void)
{
  __asm__ volatile("" ::: "memory");
  guarded_path = NULL;
}
