/* A task of a program, called in this process with the words of a line. */
#ifndef PLM_TESTS_SUPPORT_CASES_TASK_LINE_H
#define PLM_TESTS_SUPPORT_CASES_TASK_LINE_H

#include "common/cli/program.h"

/* Runs the task with words that are separated by blanks; they must be valid for its options. What
 * it borrows from them stays until task_line_end, which may be called at any time, or until the
 * next call. */
plm_status task_line_run(const struct plm_program *task, const char *line, struct plm_error *error);
void task_line_end(void);

#endif
