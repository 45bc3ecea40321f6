/* Whether an endpoint can be bound here, and if not, who has it. */
#ifndef PLM_STAGES_PORT_OWNER_H
#define PLM_STAGES_PORT_OWNER_H

#include <stdbool.h>

/* owner: "plm-trainer (process 123)", or "another user's process". ipc endpoints and ports chosen
 * by the system are never taken. */
bool plm_port_taken(const char *endpoint, char owner[256]);

#endif
