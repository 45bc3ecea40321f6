/* Whether the system killed a stage for lack of memory. Such a stage is ended by signal 9, as by
 * `kill -9`, and only a counter tells the difference. */
#ifndef PLM_STAGES_SUPERVISOR_STAGE_MEMORY_KILL_H
#define PLM_STAGES_SUPERVISOR_STAGE_MEMORY_KILL_H

#include <stdint.h>

#include "common/base/text/text.h"

/* How many processes have been killed for lack of memory, in the control group of this process or,
 * where groups do not count them, on this host. 0 if that is not known. */
uint64_t plm_memory_kills(void);

/* What to say after the name of the signal that ended a stage, when plm_memory_kills was `before`
 * at its start: ", probably for lack of memory", or nothing. */
const char *plm_memory_kill_note(int signal_number, uint64_t before);

/* Adds a line that says what to do about it, indented by two spaces. */
void plm_memory_kill_hint(struct plm_text *text);

#endif
