/* Readiness and stop signals: what ties a stage to whoever started it. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/run/run.h"

volatile int plm_stop_requested;

static void note_stop(int number)
{
  if (plm_stop_requested != 0) { /* a second signal kills */
    signal(number, SIG_DFL);
    raise(number);
  }
  plm_stop_requested = number;
}

void plm_stop_signals_install(void)
{
  struct sigaction action = {.sa_handler = note_stop};
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
