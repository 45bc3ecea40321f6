/* A command of plm-pipeline, called in this process: what it prints, and how the program would end.
 */
#ifndef PLM_TESTS_SUPPORT_CASES_COMMAND_CASE_H
#define PLM_TESTS_SUPPORT_CASES_COMMAND_CASE_H

/* What the last call printed, valid until the next one. */
extern const char *command_out, *command_err;

/* Calls the command that words[0] names with the others as its arguments; a NULL ends them. The
 * stages have no programs. Returns the exit code. */
int command_case(const char *const *words);
#define COMMAND(...) command_case((const char *const[]){__VA_ARGS__, NULL})

/* The same with a terminal of so many columns as standard output. */
int command_case_on_terminal(unsigned short columns, const char *const *words);
#define COMMAND_ON_TERMINAL(columns, ...) \
  command_case_on_terminal(columns, (const char *const[]){__VA_ARGS__, NULL})

#endif
