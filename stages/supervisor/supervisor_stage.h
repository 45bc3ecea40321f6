/* The life of one instance of a stage: starting it, stopping it, and judging how it ended. These
 * functions return no errors: what goes wrong with a stage becomes its state and is reported. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_STAGE_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_STAGE_H

#include <stdint.h>

#include "stages/supervisor/report/supervisor_prometheus.h"
#include "stages/supervisor/report/supervisor_screen.h"
#include "stages/supervisor/supervised.h"

/* Between SIGTERM and SIGKILL for processes that a stage left behind. */
enum { LEFTOVER_GRACE_MS = 5000 };

/* What a stage is started with, and who is told of it. */
struct launcher {
  struct stages *stages;
  struct screen *screen;
  struct exporter *exporter;
  const char *program_directory;
  const char *fingerprint;            /* of the corpus, in hex; "" if there is none here */
  const char *const *trainer_options; /* further arguments; ends with NULL; or NULL */
  const char *const *packer_options;  /* likewise */
};

void supervised_start(struct launcher *launcher, struct supervised *stage);
/* Sends SIGTERM (SIGUSR1 to a gang), and SIGKILL when the stage's time is up. A stage without a
 * process has stopped at once. */
void supervised_stop(const struct plm_config *config, struct supervised *stage);
/* Sends SIGKILL to the stage and to all processes that it started. */
void supervised_kill(struct supervised *stage);
/* Called when ready_fd has a line, or was closed without one. */
void supervised_readable(struct screen *screen, struct supervised *stage);
/* Called when the main process is gone, with waitpid's status. The stage ends once its other
 * processes are also gone. */
void supervised_reaped(struct launcher *launcher, struct supervised *stage, int status);
/* Called each turn: acts when the back-off or the stop time is over, or when the last processes are
 * gone. */
void supervised_tick(struct launcher *launcher, struct supervised *stage, int64_t now_ms);

/* How the main process ended, in words: "exited with 2". */
void supervised_ending(const struct supervised *stage, char text[96]);

#endif
