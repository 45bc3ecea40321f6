/* What the supervisor's files share. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include <sys/types.h>

#include "common/base/text.h"
#include "stages/supervisor/supervised.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/supervisor_gang.h"
#include "stages/supervisor/supervisor_prometheus.h"
#include "stages/supervisor/supervisor_screen.h"
#include "stages/supervisor/supervisor_socket.h"
#include "stages/supervisor/supervisor_stage.h"
#include "stages/supervisor/supervisor_watchdog.h"

enum {
  CLIENTS_MAX = 16,
  CLIENT_LINE_SIZE = 4096,
  FAILURE_LINES = 20,
  FAILURES_TOLD = 4,
};

enum client_wait { CLIENT_ASKS, CLIENT_WAITS_END, CLIENT_WAITS_READY };

struct client {
  int descriptor; /* -1 if this place is free */
  enum client_wait waits;
  size_t used;
  char line[CLIENT_LINE_SIZE];
};

struct plm_supervisor {
  struct plm_supervisor_options options;
  struct stages stages;
  struct gang gang;
  struct launcher launcher;
  struct watchdog watchdog;
  bool killing;
  int exit_code;           /* set at the end */
  int drain_signal;        /* the signal that stopped the run; 0: none */
  unsigned signals;        /* SIGINT, SIGTERM and `down` so far */
  bool packers_fatal;      /* endpoints.json says so */
  struct plm_text failure; /* set at the end: what failed, for people; empty if nothing did */
  int signal_fd, listen_fd;
  char socket_path[PLM_SOCKET_PATH_SIZE];
  struct client clients[CLIENTS_MAX];
  struct screen screen;
  struct exporter exporter;
};

/* supervisor.c: connects the parts. options->config and the table's memory stay the caller's. */
void supervisor_init(struct plm_supervisor *supervisor,
                     const struct plm_supervisor_options *options, struct supervised *table);

/* supervisor_policy.c: what the states of all instances mean for the run. */
/* Called each turn: begins to stop a run that is over, or continues to stop one. */
void supervisor_decide(struct plm_supervisor *supervisor);
/* Begins to stop all stages in order. signal_number is SIGTERM for `down`, and 0 if the run ends by
 * itself. The second signal kills all stages; SIGUSR1 does not count (common/run/stop.h). */
void supervisor_drain(struct plm_supervisor *supervisor, int signal_number);
/* Whether the run was stopped and no stage is left. */
bool supervisor_finished(const struct plm_supervisor *supervisor);

/* supervisor_requests.c: the control socket. */
void supervisor_accept(struct plm_supervisor *supervisor);
void supervisor_client_readable(struct plm_supervisor *supervisor, struct client *client);
/* _ready answers the clients that wait for all stages to be ready, if they are; _end answers those
 * that wait for the end, with exit_code, and hangs up on the others. */
void supervisor_answer_ready(struct plm_supervisor *supervisor);
void supervisor_answer_end(struct plm_supervisor *supervisor);

/* supervisor_report.c. Called at the end: fills supervisor->failure, with the root cause first, and
 * returns the exit code that the failures give the run, 0 if none of them fails it. */
int supervisor_judge_failures(struct plm_supervisor *supervisor);

#endif
