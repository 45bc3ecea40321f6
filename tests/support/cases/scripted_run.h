/* Runs whose stages are scripts: they are ready at once, and do what a test wants. */
#ifndef PLM_TESTS_SUPPORT_CASES_SCRIPTED_RUN_H
#define PLM_TESTS_SUPPORT_CASES_SCRIPTED_RUN_H

#include "common/base/files/file.h"
#include "tests/support/cases/command_case.h"

enum { SCRIPTED_LIMIT_MS = 60000 };

/* A stage is ready and says how it was started. From then on, it writes down when it is told to
 * stop, and ends. */
#define BEGINS                                                                      \
  "#!/bin/sh\nstage=${0##*/plm-}\nrun=$4\ntrap 'echo $stage >>told; exit 0' TERM\n" \
  "echo \"plm-$stage: a line\"\necho >/proc/self/fd/\"$PLM_READY_FD\"\n"            \
  "echo \"$stage.$PLM_INSTANCE $*\" >>words\n"
/* It waits until the text is in four lines of the file: until all stages have begun, for example.
 */
#define UNTIL_FOUR(text, file)                                                       \
  "for i in $(seq 6000); do [ \"$(grep -c '" text "' " file ")\" -lt 4 ] || break; " \
  "sleep 0.01; done\n"
#define ALL_HAVE_BEGUN UNTIL_FOUR("", "words")
#define IS_DONE                                                                             \
  "echo '{\"step\":20,\"identity\":\"00000000000000010000000000000002\"}' >\"$run/DONE\"\n" \
  "exit 0\n"
#define ENDS_AFTERWARDS "until [ -e \"$run/DONE\" ]; do sleep 0.01; done\nexit 0\n"

extern char scripted_folder[PLM_PATH_SIZE]; /* the working directory */
extern char scripted_run[PLM_PATH_SIZE];    /* the run of FOLDER/its.yaml, with two packers */
extern char scripted_out[1 << 14], scripted_err[1 << 14]; /* what the last call has printed */
extern bool scripted_adopts; /* its process became the parent of orphans */

/* A setup of cmocka: makes the folder. Each stage stays until it is told to stop. */
int scripted_run_begin(void **state);

/* Calls a command in a process of its own, because a supervisor keeps what it has set up in its
 * process; a NULL ends the words. Returns the exit code. */
int scripted_call(const char *const *words);
#define UP(...) scripted_call((const char *const[]){"up", "its.yaml", __VA_ARGS__, NULL})

/* Fail unless the last call has said this on its standard error, or unless it has not. */
void scripted_says(const char *text);
void scripted_does_not_say(const char *text);

#endif
