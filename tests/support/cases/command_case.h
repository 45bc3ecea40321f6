/* A command of plm-pipeline, called in this process: what it prints, and how the program would end.
 */
#ifndef PLM_TESTS_SUPPORT_CASES_COMMAND_CASE_H
#define PLM_TESTS_SUPPORT_CASES_COMMAND_CASE_H

#include <stdbool.h>

/* What the last call printed, valid until the next one. */
extern const char *command_out, *command_err;

/* The folder of the programs that commands start: none, until a test writes one. */
extern const char *command_programs;
/* Makes the program (plm-pipeline or that of a stage) this script, for all calls from now on. */
void command_case_program(const char *name, const char *script);
/* Such a script, which prints a line; valid until the next call. */
const char *command_case_prints(const char *line);
/* The end of such a script, which stays until a signal ends it. It sleeps, because a shell that
 * reads from a FIFO does not notice a signal that comes just before. */
#define STAYS "for i in $(seq 6000); do sleep 0.01; done\n"

/* Calls the command that words[0] names with the others as its arguments; a NULL ends them. Returns
 * the exit code. */
int command_case(const char *const *words);
#define COMMAND(...) command_case((const char *const[]){__VA_ARGS__, NULL})

/* Checks that it ends with this code, prints nothing and says first what is wrong. */
void command_case_refuses(int code, const char *what, const char *const *words);
#define COMMAND_REFUSES(code, what, ...) \
  command_case_refuses(code, what, (const char *const[]){__VA_ARGS__, NULL})

/* For another thread: waits until the command that is being called has said this on its standard
 * error. */
bool command_case_says(const char *text);

/* The same as COMMAND with a terminal of this width as standard output. */
int command_case_on_terminal(unsigned short columns, const char *const *words);
#define COMMAND_ON_TERMINAL(columns, ...) \
  command_case_on_terminal(columns, (const char *const[]){__VA_ARGS__, NULL})

#endif
