/* Whether an endpoint can be bound here, and if not, who has it: before stages are started that
 * would fail on it one after another. */
#ifndef PLM_STAGES_SUPERVISOR_PORT_TAKEN_H
#define PLM_STAGES_SUPERVISOR_PORT_TAKEN_H

#include <stdbool.h>

/* owner: "pid 123 (plm-trainer)", or "another user's process". A port that the system chooses (* or
 * 0) is never taken. */
bool plm_port_taken(const char *endpoint, char owner[128]);

#endif
