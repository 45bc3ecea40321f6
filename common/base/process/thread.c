/* Starting a thread, and a condition variable. */
#include "common/base/process/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { NAME_SIZE = 16 }; /* the kernel's limit, with the terminator */

static void block_signals(sigset_t *before)
{
  static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t blocked;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, before);
}

plm_status plm_thread_start(pthread_t *thread, const char *name, void *(*body)(void *context),
                            void *context, struct plm_error *error)
{
  PLM_ASSERT(strlen(name) < NAME_SIZE);
  sigset_t before;
  pthread_attr_t attributes;
  int failed = pthread_attr_init(&attributes);
  if (failed == 0) {
    failed = pthread_attr_setstacksize(&attributes, PLM_THREAD_STACK_BYTES);
    /* The thread inherits the mask. If its body blocked the signals, one could arrive before. */
    block_signals(&before);
    if (failed == 0) failed = pthread_create(thread, &attributes, body, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
  }
  if (failed == 0) {
    (void)pthread_setname_np(*thread, name); /* a name is only for people */
    return PLM_OK;
  }
  errno = failed;
  return plm_error_errno(error, "cannot start the thread \"%s\"", name);
}

void plm_condition_init(pthread_cond_t *condition)
{
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}
