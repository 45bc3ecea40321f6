/* The ports that a run binds, and which process already uses one. They are checked before the
 * stages start, because the stages would fail one after another. */
#ifndef PLM_STAGES_SUPERVISOR_PREPARE_RUN_PORTS_H
#define PLM_STAGES_SUPERVISOR_PREPARE_RUN_PORTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/config/config.h"
#include "stages/supervisor/prepare/supervisor_table.h"

struct plm_run_port {
  const char *key;     /* "network.feed" */
  const char *address; /* its value in the configuration */
  const char *any;     /* a value of the key that leaves the choice to the system */
  bool taken;          /* somebody has it; never set if the system chooses the port */
  char owner[128];     /* if taken: "pid 123 (plm-trainer)" or "another user's process" */
  char wrong[256];     /* why it can never be bound here: its host does not resolve, or is another
                          one; "" if it can */
};

enum { PLM_RUN_PORTS = 4 };

/* Fills ports with those that the chosen stages and metrics.prometheus bind, and returns how many
 * there are. The texts are the configuration's. */
size_t plm_run_ports(const struct plm_config *config, const bool chosen[PLM_KIND_COUNT],
                     struct plm_run_port ports[PLM_RUN_PORTS]);

#endif
