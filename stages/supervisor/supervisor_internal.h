/* All parts of the supervisor, as its loop and the tests see them. Each part has a header of its
 * own and points only to the parts that it needs. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include "common/base/text/text.h"
#include "stages/supervisor/report/supervisor_prometheus.h"
#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/supervised.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/supervisor_gang.h"
#include "stages/supervisor/supervisor_policy.h"
#include "stages/supervisor/supervisor_requests.h"
#include "stages/supervisor/supervisor_stage.h"
#include "stages/supervisor/supervisor_watchdog.h"

struct plm_supervisor {
  struct plm_supervisor_options options;
  struct stages stages;
  struct gang gang;
  struct launcher launcher;
  struct watchdog watchdog;
  struct drain drain;
  struct requests requests;
  struct screen screen;
  struct exporter exporter;
  int signal_fd;
};

/* Connects the parts. The table has SUPERVISED_MAX entries, and stays the caller's, as does what
 * the options point to. */
void supervisor_init(struct plm_supervisor *supervisor,
                     const struct plm_supervisor_options *options, struct supervised *table);

#endif
