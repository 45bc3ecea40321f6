/* The command that continues a run, for messages. */
#ifndef PLM_STAGES_SUPERVISOR_REPORT_UP_COMMAND_H
#define PLM_STAGES_SUPERVISOR_REPORT_UP_COMMAND_H

#include "common/base/text/text.h"
#include "common/config/config.h"

/* Appends `plm-pipeline up`, the file of the configuration unless it is the one that is read
 * anyway, pipeline.yaml of the working directory, and --run with `run`, unless that is NULL. */
void plm_up_command_put(const struct plm_config *config, const char *run, struct plm_text *text);

#endif
