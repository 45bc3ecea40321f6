/* Readiness and stop signals: what ties a stage to whoever started it. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/run/run.h"

volatile int plm_stop_requested;

static void note_stop(int number)
{
  if (__atomic_load_n(&plm_stop_requested, __ATOMIC_RELAXED) != 0) { /* a second signal kills */
    signal(number, SIG_DFL);
    raise(number);
  }
  __atomic_store_n(&plm_stop_requested, number, __ATOMIC_RELEASE);
}

/* oneDNN's generated fp32 products (2.6) point rsp into a buffer on the heap while they run: a
 * handler on the interrupted stack overwrites what lies before that buffer. Threads that compute
 * beside the main one block signals. */
static void use_a_stack_of_its_own(void)
{
  enum { SIZE = 1 << 16 }; /* the registers of AVX-512 and AMX take 11 kB */
  static _Alignas(64) unsigned char bytes[SIZE];
  const stack_t stack = {.ss_sp = bytes, .ss_size = SIZE};
  stack_t present;
  /* a sanitizer has made one already */
  if (sigaltstack(NULL, &present) == 0 && (present.ss_flags & SS_DISABLE))
    sigaltstack(&stack, NULL);
}

void plm_stop_signals_install(void)
{
  struct sigaction action = {.sa_handler = note_stop, .sa_flags = SA_ONSTACK};
  use_a_stack_of_its_own();
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

void plm_ready(void)
{
  const char *text = getenv("PLM_READY_FD");
  if (text == NULL) return;
  char *end;
  const long descriptor = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || descriptor < 0) return;
  if (write((int)descriptor, "\n", 1) == 1) close((int)descriptor);
  unsetenv("PLM_READY_FD");
}
