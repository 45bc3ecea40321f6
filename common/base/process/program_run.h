/* Finding another program and taking what it prints. */
#ifndef PLM_COMMON_BASE_PROCESS_PROGRAM_RUN_H
#define PLM_COMMON_BASE_PROCESS_PROGRAM_RUN_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/base/text/text.h"

/* The path of a program, by its name, in the folders of PATH. As the shell does, an empty folder is
 * the present one. False: no folder has an executable file of this name. */
bool plm_program_find(const char *name, char path[PLM_PATH_SIZE]);

struct plm_program_said {
  struct plm_text out; /* standard output */
  struct plm_text err; /* standard error, if take_err; otherwise the program writes to ours */
  bool capture_err;
  int exit_code; /* -1: a signal ended it; 127: it could not be executed */
};

/* Runs the program at the path arguments[0] with the arguments, NULL-terminated, and waits for its
 * end. At most limit_bytes are taken of each output; a program that prints more is ended by
 * SIGPIPE. limit_s: SIGALRM ends it after so many seconds; 0: no limit. Appends to the texts, which
 * the caller owns, also after an error. An error: it could not be started. */
plm_status plm_program_run(const char *const *arguments, size_t limit_bytes, unsigned limit_s,
                           struct plm_program_said *said, struct plm_error *error);
void plm_program_said_deinit(struct plm_program_said *said);

#endif
