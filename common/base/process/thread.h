/* Starting a thread, and a condition variable. Every module does both this way. */
#ifndef PLM_COMMON_BASE_PROCESS_THREAD_H
#define PLM_COMMON_BASE_PROCESS_THREAD_H

#include <pthread.h>

#include "common/base/status.h"

/* Every thread has this much stack, whatever `ulimit -s` says. */
#define PLM_THREAD_STACK_BYTES ((size_t)8 << 20)

/* Starts body(context) in a thread, which the caller joins with pthread_join. The thread begins
 * with all signals blocked except those that its own faults raise (SIGBUS, SIGSEGV, SIGFPE, SIGILL,
 * SIGTRAP, SIGSYS): stop signals reach the thread that installed the handler, and a handler of
 * faults runs in the thread that caused them. name: at most 15 bytes, shown by `top -H` and gdb.
 * Errors: what pthread_create says; *thread is then unspecified. */
plm_status plm_thread_start(pthread_t *thread, const char *name, void *(*body)(void *context),
                            void *context, struct plm_error *error);

/* Initialises a condition variable whose waits have deadlines of the monotonic clock. */
void plm_condition_init(pthread_cond_t *condition);

#endif
