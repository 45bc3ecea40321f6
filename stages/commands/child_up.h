/* `plm-pipeline up` as a child of another command, which starts it, watches it and stops it. */
#ifndef PLM_STAGES_COMMANDS_CHILD_UP_H
#define PLM_STAGES_COMMANDS_CHILD_UP_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/status.h"

struct plm_child {
  pid_t pid;  /* 0: none */
  int code;   /* its exit code, once it has ended; 128 + the signal if one ended it */
  bool asked; /* it was asked to stop */
};

struct plm_child_options {
  const char *program_directory;
  const char *const *arguments; /* NULL-terminated; the first is the command's name */
  const char *log; /* a file that takes what it prints; NULL: it prints where this process does */
  bool isolated;   /* PLM_* variables that are settings do not apply to it */
  bool own_ports;  /* its run gets endpoints on loopback that no other run has, and no exporter */
};
/* Starts a command of this program. The child has a process group of its own, so that Ctrl-C
 * reaches it only through plm_child_stop, and it is asked to stop if this process dies. */
plm_status plm_child_start(const struct plm_child_options *options, struct plm_child *child,
                           struct plm_error *error);
/* Whether the child has ended; child->code is then set. It does not wait. */
bool plm_child_ended(struct plm_child *child);
/* Asks the child to stop in order, once; after a stop signal of this process, with that signal. */
void plm_child_stop(struct plm_child *child);

#endif
