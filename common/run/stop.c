/* Stop signals: the handler that sets the flag, and the status and message of a stop. */
#include "common/run/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/base/process/process_state.h"

volatile int plm_stop_requested;

static int told;         /* SIGINT or SIGTERM has come; atomic */
static pid_t supervisor; /* that started this process; 0: none */

enum { HANDLED = 4 };
static const int handled[HANDLED] = {SIGTERM, SIGUSR1, SIGINT, SIGPIPE};
static struct sigaction replaced[HANDLED]; /* their actions before the installation */
static bool installed;

/* Batch systems and service managers signal every process of a job, so a stage gets the signal
 * twice: from them, and from its supervisor, which stops its stages in order or dies. While the
 * supervisor lives, only it kills, with SIGKILL. */
static void note_stop(int number, siginfo_t *information, void *context)
{
  (void)context;
  int none = 0;
  const bool second = number != SIGUSR1 && __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) != 0;
  const bool supervised =
      supervisor != 0 && (information->si_pid == supervisor || getppid() == supervisor);
  if (second && !supervised) {
    signal(number, SIG_DFL);
    raise(number);
    if (getpid() == 1) _exit(128 + number); /* which the default action does not end */
  }
  __atomic_compare_exchange_n(&plm_stop_requested, &none, number, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

/* While one of oneDNN 2.6's generated fp32 products runs, rsp points into a buffer on the heap: a
 * handler that ran on that stack would overwrite what lies before the buffer. Only the main thread
 * needs this, because all other threads block signals. */
static void use_separate_stack(void)
{
  enum { SIZE = 1 << 16 }; /* the registers of AVX-512 and AMX take 11 kB */
  static _Alignas(64) unsigned char bytes[SIZE];
  const stack_t stack = {.ss_sp = bytes, .ss_size = SIZE};
  stack_t present;
  /* A sanitizer may already have set one. */
  if (sigaltstack(NULL, &present) == 0 && (present.ss_flags & SS_DISABLE))
    sigaltstack(&stack, NULL);
}

/* Also true for a process that its parent has not waited for. */
static bool is_gone(pid_t pid)
{
  char state;
  pid_t parent;
  if (kill(pid, 0) != 0) return errno == ESRCH;
  return plm_process_state(pid, &state, &parent) && (state == 'Z' || state == 'X');
}

void plm_stop_signals_install(void)
{
  const struct sigaction action = {.sa_sigaction = note_stop, .sa_flags = SA_ONSTACK | SA_SIGINFO};
  const struct sigaction ignore = {.sa_handler = SIG_IGN};
  const char *mark = getenv(PLM_SUPERVISED); /* begins with the supervisor's process */
  supervisor = mark != NULL ? (pid_t)atol(mark) : 0;
  use_separate_stack();
  for (int i = 0; i < HANDLED; i++)
    sigaction(handled[i], handled[i] == SIGPIPE ? &ignore : &action,
              installed ? NULL : &replaced[i]);
  installed = true;
  /* The kernel signals the children of a supervisor that dies. If that is mpirun, it passes the
   * signal on only to ranks that it has started already. */
  if (plm_stop_requested == 0 && supervisor > 0 && is_gone(supervisor))
    plm_stop_requested = SIGTERM;
}

void plm_stop_signals_restore(void)
{
  for (int i = 0; installed && i < HANDLED; i++) sigaction(handled[i], &replaced[i], NULL);
  installed = false;
}

plm_status plm_stop_status(int signal_number)
{
  return signal_number == SIGINT ? PLM_INTERRUPTED : PLM_TERMINATED;
}

plm_status plm_stop_drained(struct plm_error *error)
{
  const int number = __atomic_load_n(&plm_stop_requested, __ATOMIC_ACQUIRE);
  if (number == 0) return PLM_OK;
  return plm_error_set(error, plm_stop_status(number), "%s", "");
}

static const char *stop_name_of(int signal_number)
{
  switch (signal_number) {
  case SIGINT: return "Ctrl-C";
  case SIGUSR1: return "SIGUSR1";
  default: return "SIGTERM";
  }
}

plm_status plm_stop_check(const char *consequence, struct plm_error *error)
{
  const int number = __atomic_load_n(&plm_stop_requested, __ATOMIC_ACQUIRE);
  if (number == 0) return PLM_OK;
  return plm_error_set(error, plm_stop_status(number), "stopped by %s%s", stop_name_of(number),
                       consequence);
}
