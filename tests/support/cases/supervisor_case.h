/* A supervisor without processes, socket or screen, whose stages a test puts into any state. Errors
 * end the process. */
#ifndef PLM_TESTS_SUPPORT_CASES_SUPERVISOR_CASE_H
#define PLM_TESTS_SUPPORT_CASES_SUPERVISOR_CASE_H

#include "stages/supervisor/supervisor_internal.h"

/* What waitpid reports. */
#define EXITED(code) ((code) << 8)
#define KILLED(number) (number)

/* Makes a run folder with the configuration, in which all kinds of stages are chosen. It has no
 * stage yet. program_directory is scratch_path("bin"), which has no programs. */
struct plm_supervisor *supervisor_case_open(const char *yaml);
void supervisor_case_close(struct plm_supervisor *supervisor);

/* Adds an instance of a kind in this state, with the next number of its kind. It has no process. */
struct supervised *supervisor_case_add(struct plm_supervisor *supervisor, enum plm_stage_index kind,
                                       enum plm_stage_state state);

#endif
