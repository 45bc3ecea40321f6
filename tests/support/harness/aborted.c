/* See aborted.h. */
#include "tests/support/harness/aborted.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

const char *aborted(void (*function)(const void *context), const void *context)
{
  int status = 0;
  captured_begin(STDERR_FILENO);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);
    function(context);
    _exit(0);
  }
  const pid_t ended = child > 0 ? waitpid(child, &status, 0) : -1;
  const char *said = captured_end();
  assert_true(child > 0 && ended == child);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
    fail_msg("status %x: %s", (unsigned)status, said);
  return said;
}
