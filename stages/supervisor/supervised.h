/* The process table of the supervisor: an entry for each instance of a stage, and what an entry
 * tells without being changed. */
#ifndef PLM_STAGES_SUPERVISOR_SUPERVISED_H
#define PLM_STAGES_SUPERVISOR_SUPERVISED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/config/config.h"
#include "common/run/log_tail.h"
#include "stages/supervisor/prepare/supervisor_table.h"
#include "stages/supervisor/stage/stage_failure.h"
#include "stages/supervisor/stage/stage_pulse.h"
#include "stages/supervisor/stage/supervisor_state.h"
#include "stages/views/run_activity.h"

enum {
  SUPERVISED_MAX = 2 + 256, /* trainer, evaluator, packers */
  PACKER_UNHEARD_S = 10,    /* before it is told that no consumer hears a packer */
  PACKER_SILENT_S = 30,     /* before it is told that it says nothing itself */
};

struct gang; /* supervisor_gang.h */

/* One instance of a stage. */
struct supervised {
  enum plm_stage_index kind;
  unsigned instance;
  enum plm_stage_state state;
  pid_t pid;               /* of its main process; 0 if that is gone or was never started */
  char launched_host[256]; /* of a launched packer: where it is, from its first sign of life */
  pid_t launched_pid;      /* 0: not known */
  bool ending;     /* the main process was reaped, but processes that it started still live */
  int wait_status; /* from waitpid */
  int ready_fd;    /* -1 if closed */
  unsigned restarts;
  struct plm_failures failures;
  struct plm_pulse pulse;
  bool silent;        /* it was killed because it gave no sign of life */
  bool heard;         /* a consumer has listed this packer since its start */
  bool listing;       /* and it is expected to: some consumer reports its packers */
  uint64_t spoken_ms; /* the time in this packer's last pulse */
  int64_t started_ms;
  int64_t due_ms;     /* in BACKOFF: when it is started again */
  int64_t judged_ms;  /* it ended as by a stop from outside, and is judged then; 0: it did not */
  int64_t kill_ms;    /* when it gets SIGKILL, if it is stopping or ending; 0: never */
  bool start_again;   /* by `restart`, once it has stopped */
  bool removed;       /* by `scale`: `ps` no longer shows it once it has stopped */
  bool killed_by_us;  /* it got SIGKILL from us, so its end is no failure */
  struct gang *gang;  /* its main process is mpirun; NULL: it is not */
  const char *launch; /* its main process is what this starts, such as srun, and the stage is
                         elsewhere: it gets only what that passes on; NULL: it is not */
  struct plm_tail tail;
  struct plm_tail_place log_start; /* where the lines of its present process begin in its log */
  uint64_t memory_kills;           /* plm_memory_kills when it was started */
  unsigned failed_as; /* order of this permanent failure within the run, from 1; 0: none */
  double failed_s;    /* when it last failed, in seconds since 1970; 0: it has not */
  char cause[1600];   /* the last failure: how, and the error that it printed */
  bool failed_again;  /* for a failure that repeats itself (PLM_VERDICT_REPEATED) */
  enum plm_failure_kind failed_kind; /* of the last failure */
  char failed_how[512];              /* "exited with 2" */
};

/* The table. */
struct stages {
  const struct plm_config *config; /* of the run */
  struct gang *gang;               /* for a trainer with several ranks */
  const char *const *launch;       /* for each kind; NULL: all stages run here */
  struct supervised *all;          /* SUPERVISED_MAX of them; the owner frees them */
  size_t count;
  bool apart;        /* another supervisor has the run, and these stages only run beside its own */
  bool draining;     /* all of them are being stopped, and none is started again */
  unsigned failures; /* permanent failures so far */
};

/* Adds an idle instance; there may be SUPERVISED_MAX at most. */
struct supervised *supervised_add(struct stages *stages, enum plm_stage_index kind,
                                  unsigned instance);

/* Sends SIGKILL to all processes of the stage. A srun that is killed ends its step only if what it
 * has started itself is left alone. Returns how many processes there are. */
size_t supervised_signal_kill(const struct supervised *stage);
/* Whether the stage has bound its endpoints, which one does that is ready. A stage without any has.
 * For those that cannot say that they are ready. */
bool supervised_has_bound(const struct stages *stages, const struct supervised *stage);

/* Writes "trainer.0" into name and returns it. */
const char *supervised_name(const struct supervised *stage, char name[64]);
/* "packer.N", as in the name of its pulse. */
enum { PACKER_ROLE_SIZE = 32 };
void supervised_packer_role(const struct supervised *stage, char role[PACKER_ROLE_SIZE]);

/* packer: an entry of a consumer's peers file. Whether it is this stage; and its number if it is
 * one of these stages, else host:pid. */
struct cJSON;
bool supervised_is_peer(const struct supervised *stage, const struct cJSON *packer);
/* What the packer has said last. false: nothing. Of a launched one that is not known yet, whatever
 * process of its name has. */
bool supervised_packer_sign(const struct stages *stages, const struct supervised *stage,
                            struct plm_run_sign *sign);
void stages_name_packer(const struct stages *stages, const struct cJSON *packer, char instance[96]);

/* Seconds since a stage that is ready, or a packer that starts, gave a sign of life; -1: not known.
 */
double supervised_unheard_s(const struct supervised *stage);
/* What is wrong with a stage that lives: "stopped by a signal", "heard by no consumer", "no sign"
 * and what the packer does. word: without the time, as a label. Both are "" if nothing is. */
struct supervised_trouble {
  char text[PLM_ACTIVITY_TEXT], word[PLM_ACTIVITY_TEXT - 32];
};
void supervised_trouble(const struct stages *stages, const struct supervised *stage,
                        struct supervised_trouble *trouble);
/* The command that starts a stage again that has failed for good, as `ps`, `runs` and Prometheus
 * tell it; "" in any other state. Without a trainer the run ends, so `up` continues it. */
enum { REMEDY_SIZE = 256 };
void supervised_remedy(const struct stages *stages, const struct supervised *stage,
                       char text[REMEDY_SIZE]);

#endif
