/* What the supervisor's files share. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define PLM_STAGES_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include <sys/types.h>

#include "common/base/text.h"
#include "common/metrics/http.h"
#include "common/metrics/prometheus.h"
#include "common/run/log_tail.h"
#include "stages/supervisor/supervisor.h"
#include "stages/supervisor/supervisor_socket.h"
#include "stages/supervisor/supervisor_state.h"

enum {
  SUPERVISED_MAX = 2 + 256, /* trainer, evaluator, packers */
  CLIENTS_MAX = 16,
  CLIENT_LINE_SIZE = 4096,
  LEFTOVER_GRACE_MS = 5000, /* between SIGTERM and SIGKILL for what a stage left behind */
  FAILURE_LINES = 20,
  FAILURES_TOLD = 4,
};

/* One instance of a stage. */
struct supervised {
  enum plm_stage_index kind;
  unsigned instance;
  enum plm_stage_state state;
  pid_t pid;       /* 0: its main process is gone or was never made */
  bool ending;     /* the main process is reaped, something it started still lives */
  int wait_status; /* of waitpid */
  int ready_fd;    /* -1: closed */
  unsigned restarts;
  struct plm_backoff backoff;
  int64_t started_ms;
  int64_t due_ms;    /* BACKOFF: the next start */
  int64_t kill_ms;   /* STOPPING, or ending: SIGKILL then; 0: never */
  bool start_again;  /* `restart`: once it has stopped */
  bool removed;      /* `scale`: gone from `ps` once it has stopped */
  bool killed_by_us; /* SIGKILL after its time was up: no failure of its own */
  struct plm_tail tail;
  uint64_t log_start; /* of this process in its log file */
  unsigned
      failed_as; /* FATAL: the how manieth of the run to fail for good, from 1; 0: it did not */
  char failed_how[256]; /* "exited with 2" */
};

enum client_wait { CLIENT_ASKS, CLIENT_WAITS_END, CLIENT_WAITS_READY };

struct client {
  int descriptor; /* -1: free */
  enum client_wait waits;
  size_t used;
  char line[CLIENT_LINE_SIZE];
};

/* The status line's sources. */
struct screen {
  bool on_terminal; /* a status line is drawn */
  bool color;
  bool lines; /* the stages' lines are shown */
  bool drawn;
  struct plm_tail trainer, evaluator;
  uint64_t step;
  double loss, tokens_per_second, step_ms;
  char evaluation[128];
};

/* The source of a computing stage's metrics: its JSONL file. */
struct exported {
  struct plm_tail tail;
  bool counted; /* what comes now is this start's */
};

/* metrics.prometheus; http NULL: not asked for. */
struct exporter {
  struct plm_http *http;
  struct plm_prometheus *metrics;
  struct exported files[2]; /* trainer, evaluator */
};

struct plm_supervisor {
  struct plm_supervisor_options options;
  const struct plm_config *config;
  const char *run;
  struct supervised *stages; /* SUPERVISED_MAX of them */
  size_t count;
  bool draining, killing;
  int exit_code;           /* once draining */
  int drain_signal;        /* 130 or 143, 0: the run ended by itself */
  unsigned signals;        /* SIGINT, SIGTERM, `down` so far */
  bool packers_fatal;      /* said so in endpoints.json */
  unsigned failures;       /* stages that failed for good so far */
  struct plm_text failure; /* once it has ended: what failed, for people; empty: nothing */
  int signal_fd, listen_fd;
  char socket_path[PLM_SOCKET_PATH_SIZE];
  struct client clients[CLIENTS_MAX];
  struct screen screen;
  struct exporter exporter;
};

/* supervisor_stage.c: one instance. What goes wrong with it becomes its state and is said: no
 * errors to return. */
/* Idle; at most SUPERVISED_MAX. */
struct supervised *supervised_add(struct plm_supervisor *supervisor, enum plm_stage_index kind,
                                  unsigned instance);
void supervised_start(struct plm_supervisor *supervisor, struct supervised *stage);
/* SIGTERM, and SIGKILL when the stage's time is up; at once stopped is one that does not live. */
void supervised_stop(struct plm_supervisor *supervisor, struct supervised *stage);
/* SIGKILL, to all that the stage started, too. */
void supervised_kill(struct supervised *stage);
/* ready_fd has its line, or was closed without one. */
void supervised_readable(struct plm_supervisor *supervisor, struct supervised *stage);
/* The main process is gone, with waitpid's status; the stage has ended when its children are. */
void supervised_reaped(struct plm_supervisor *supervisor, struct supervised *stage, int status);
/* Deadlines: back-off over, stop time over, leftovers gone. */
void supervised_tick(struct plm_supervisor *supervisor, struct supervised *stage, int64_t now_ms);

/* supervisor_policy.c: what the states of all instances mean for the run */
/* Once a turn: begins the end of a run that is over, goes on with one that is stopping. */
void supervisor_decide(struct plm_supervisor *supervisor);
/* Begins to stop all stages in order. signal_code: 130 or 143, the second of them kills; 0: the run
 * ended by itself. */
void supervisor_drain(struct plm_supervisor *supervisor, int signal_code);
/* Stopping, and no stage lives. */
bool supervisor_finished(const struct plm_supervisor *supervisor);
/* The run has its last checkpoint (DONE). */
bool supervisor_run_is_done(const struct plm_supervisor *supervisor);

/* supervisor_requests.c: the control socket */
void supervisor_accept(struct plm_supervisor *supervisor);
void supervisor_client_readable(struct plm_supervisor *supervisor, struct client *client);
/* Answers those who wait for all stages to be ready, when they are; for the end, with exit_code. */
void supervisor_answer_ready(struct plm_supervisor *supervisor);
void supervisor_answer_end(struct plm_supervisor *supervisor);

/* supervisor_prometheus.c: the run's metrics over HTTP, of all stages together. */
plm_status exporter_open(struct plm_supervisor *supervisor, struct plm_error *error);
void exporter_started(struct plm_supervisor *supervisor, const struct supervised *stage);
/* New lines of the stages' files; and, after a poll of what plm_http_fill gave, the clients. */
void exporter_update(struct plm_supervisor *supervisor);
void exporter_close(struct plm_supervisor *supervisor);

/* supervisor_report.c: words */
void supervised_name(const struct supervised *stage, char name[64]);
void supervised_ending(const struct supervised *stage, char text[96]);
void supervisor_note_failure(struct plm_supervisor *supervisor, struct supervised *stage,
                             const char *how);
/* At the end: the code that the stages' failures give the run (0: none that matters to it), and
 * supervisor->failure, the root cause first. */
int supervisor_judge_failures(struct plm_supervisor *supervisor);

/* supervisor_screen.c: what the person sees */
void screen_open(struct plm_supervisor *supervisor);
void screen_say(struct plm_supervisor *supervisor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Lines of stages that came, and the status line. */
void screen_update(struct plm_supervisor *supervisor);
void screen_close(struct plm_supervisor *supervisor);

#endif
