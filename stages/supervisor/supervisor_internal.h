/* What the supervisor's files share. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include <sys/types.h>

#include "common/base/text.h"
#include "common/metrics/http.h"
#include "common/metrics/prometheus.h"
#include "common/run/log_tail.h"
#include "stages/supervisor/supervised.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/supervisor_gang.h"
#include "stages/supervisor/supervisor_screen.h"
#include "stages/supervisor/supervisor_socket.h"

enum {
  CLIENTS_MAX = 16,
  CLIENT_LINE_SIZE = 4096,
  LEFTOVER_GRACE_MS = 5000, /* between SIGTERM and SIGKILL for processes that a stage left behind */
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

/* The source of the trainer's or the evaluator's metrics: its JSONL file. */
struct exported {
  struct plm_tail tail;
  bool counted; /* new lines were written since `up` started, so they advance counters */
};

/* metrics.prometheus; http is NULL if it is not set. */
struct exporter {
  struct plm_http *http;
  struct plm_prometheus *metrics;
  struct exported files[2]; /* trainer, evaluator */
};

struct plm_supervisor {
  struct plm_supervisor_options options;
  struct stages stages;
  struct gang gang;
  bool killing;
  int exit_code;           /* set at the end */
  int drain_signal;        /* the signal that stopped the run; 0: none */
  unsigned signals;        /* SIGINT, SIGTERM and `down` so far */
  int64_t watched_ms;      /* when supervisor_watch last looked; 0: not yet */
  bool packers_fatal;      /* endpoints.json says so */
  struct plm_text failure; /* set at the end: what failed, for people; empty if nothing did */
  int signal_fd, listen_fd;
  char socket_path[PLM_SOCKET_PATH_SIZE];
  struct client clients[CLIENTS_MAX];
  struct screen screen;
  struct exporter exporter;
};

/* supervisor_stage.c: one instance. These functions return no errors: what goes wrong with a stage
 * becomes its state and is reported. */
void supervised_start(struct plm_supervisor *supervisor, struct supervised *stage);
/* Sends SIGTERM (SIGUSR1 to a gang), and SIGKILL when the stage's time is up. A stage without a
 * process has stopped at once. */
void supervised_stop(struct plm_supervisor *supervisor, struct supervised *stage);
/* Sends SIGKILL to the stage and to all processes that it started. */
void supervised_kill(struct supervised *stage);
/* Called when ready_fd has a line, or was closed without one. */
void supervised_readable(struct plm_supervisor *supervisor, struct supervised *stage);
/* Called when the stage has said that it can work. */
void supervised_is_ready(struct plm_supervisor *supervisor, struct supervised *stage);
/* Called when the main process is gone, with waitpid's status. The stage ends once its other
 * processes are also gone. */
void supervised_reaped(struct plm_supervisor *supervisor, struct supervised *stage, int status);
/* Called each turn: acts when the back-off or the stop time is over, or when the last processes are
 * gone. */
void supervised_tick(struct plm_supervisor *supervisor, struct supervised *stage, int64_t now_ms);

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

/* supervisor_prometheus.c: serves the metrics of all stages over HTTP. */
plm_status exporter_open(struct plm_supervisor *supervisor, struct plm_error *error);
void exporter_started(struct plm_supervisor *supervisor, const struct supervised *stage);
/* Reads new lines of the stages' files, and serves HTTP clients after a poll of the descriptors
 * that plm_http_fill gave. */
void exporter_update(struct plm_supervisor *supervisor);
void exporter_close(struct plm_supervisor *supervisor);

/* supervisor_failure.c: moves on after a stage has failed, says so, and notes a permanent failure.
 * how: "exited with 2". */
void supervised_failed(struct plm_supervisor *supervisor, struct supervised *stage,
                       enum plm_failure_kind kind, const char *how);

/* supervisor_watchdog.c: called each turn; kills stages that give no sign of life. */
void supervisor_watch(struct plm_supervisor *supervisor, int64_t now_ms);
/* supervisor_report.c: texts about stages and failures. */
void supervised_ending(const struct supervised *stage, char text[96]);
void supervisor_note_failure(struct plm_supervisor *supervisor, struct supervised *stage,
                             const char *how);
/* Called at the end: fills supervisor->failure, with the root cause first, and returns the exit
 * code that the failures give the run, 0 if none of them fails it. */
int supervisor_judge_failures(struct plm_supervisor *supervisor);

#endif
