/* The run folder: its layout, its locks, where its stages are reached, and readiness. Every stage
 * uses it, whether the supervisor or a person started the stage. */
#ifndef PLM_COMMON_RUN_RUN_H
#define PLM_COMMON_RUN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/numbers/hash.h"
#include "common/base/status.h"

/* Paths within the run folder. */
#define PLM_RUN_CONFIG "pipeline.yaml"
#define PLM_RUN_CONFIG_APART "evaluator.yaml" /* of `up evaluator --apart` */
#define PLM_RUN_TRAINER_METRICS "trainer.jsonl"
#define PLM_RUN_EVALUATOR_METRICS "evaluator.jsonl"
#define PLM_RUN_PACKER_METRICS "packers.jsonl"
#define PLM_RUN_CHECKPOINTS "checkpoints"
#define PLM_RUN_ENDPOINTS "endpoints.json"
#define PLM_RUN_CORPUS "CORPUS"
#define PLM_RUN_DONE "DONE"
#define PLM_RUN_LOGS "logs"
#define PLM_RUN_PROFILE "profile.json" /* of trainer.profile.steps */
#define PLM_RUN_TASKS "tasks"          /* the evaluator's unfinished work on evaluator.tasks */
#define PLM_RUN_TENSORBOARD "tensorboard"
#define PLM_RUN_KEYS "keys"
#define PLM_RUN_PREVIOUS "previous-" /* and a number: what `up --resume` moved aside */
#define PLM_RUN_MOVING "MOVING"      /* in such a folder: the move is not finished */

/* Takes NAME.lock, which one process of a run can hold at a time. The kernel keeps the lock (fcntl,
 * open file description) as long as that process lives; the file names it. PLM_BUSY names the
 * holder. "trainer" and "evaluator" also lock the metrics file that they write, which is created if
 * it is missing, and "supervisor" locks the run folder (flock): removing NAME.lock does not let a
 * second one in. */
struct plm_lock;
plm_status plm_lock_acquire(const char *run, const char *name, struct plm_lock **lock,
                            struct plm_error *error);
/* Called before each line of metrics, and by the supervisor in its loop; it costs two calls of
 * stat. A NAME.lock that was removed is created again. PLM_BUSY if the metrics file or the run
 * folder was itself removed or replaced. Any thread may call it. */
plm_status plm_lock_watch(struct plm_lock *lock, struct plm_error *error);
/* As plm_lock_watch; also PLM_BUSY if NAME.lock now names another incarnation. */
plm_status plm_lock_check(struct plm_lock *lock, struct plm_error *error);
void plm_lock_release(struct plm_lock *lock); /* NULL is fine */
/* Who holds a lock. PLM_NOT_FOUND if nobody does. */
struct plm_lock_holder {
  char host[256];
  int pid;
  uint64_t incarnation;
};
plm_status plm_lock_holder(const char *run, const char *name, struct plm_lock_holder *holder,
                           struct plm_error *error);
/* Seconds since NAME.lock was last taken, with fractions: how long its holder has run. This is the
 * one age of a trainer and an evaluator against which their lines of metrics are compared, because
 * both are times of the wall clock: an older line is of an earlier process. 0 without the file. */
double plm_lock_age_s(const char *run, const char *name);

/* Finds a folder previous-N whose move is not finished. A run folder that does not exist has none.
 */
plm_status plm_run_find_move(const char *run, char previous[PLM_PATH_SIZE], bool *found,
                             struct plm_error *error);
/* PLM_BUSY if there is one. Until `up` has finished the move, part of the run is missing here, and
 * a stage that wrote to the run would take it for a new one. Stages check this before they write.
 */
plm_status plm_run_check_moved(const char *run, struct plm_error *error);

/* Waits for endpoints.lock, under which endpoints.json and the run's keys are changed. The caller
 * closes *descriptor, which releases it. */
plm_status plm_endpoints_lock(const char *run, int *descriptor, struct plm_error *error);

/* Writes one key of endpoints.json (0600), under endpoints.lock; the file is replaced atomically.
 * Keys: "feed", "evaluation_feed", "announcements", "run_id", "packers". */
plm_status plm_endpoint_write(const char *run, const char *key, const char *value,
                              struct plm_error *error);
/* PLM_NOT_FOUND if the file or the key does not exist. */
plm_status plm_endpoint_read(const char *run, const char *key, char value[512],
                             struct plm_error *error);
void plm_endpoint_remove(const char *run, const char *key);
/* Whether the supervisor has given up on all of its packers; endpoints.json then has "packers":
 * "fatal". */
bool plm_run_packers_given_up(const char *run);

/* The folder of CURVE keys that the run's sockets use: `configured` (network.keys) if it is not
 * NULL, otherwise the run's own, RUN/keys. The first stage of the run makes these (and the run
 * folder); stages that start together agree. The folders have mode 0700 and secret keys 0600.
 * PLM_CONFIG if they are incomplete, belong to another user or can be changed by one. */
plm_status plm_run_keys(const char *run, const char *configured, char keys[PLM_PATH_SIZE],
                        struct plm_error *error);

/* peers.trainer.json and peers.evaluator.json: who serves that consumer's feed now, as
 * plm_feed_peers_json prints it. The consumer, which holds the lock of the same name, writes it
 * about once a second and removes it when it ends. role: "trainer" or "evaluator". Not synced to
 * disk. */
plm_status plm_peers_write(const char *run, const char *role, const char *json,
                           struct plm_error *error);
/* The caller frees *json. PLM_NOT_FOUND: no consumer has written it in the last 10 s. */
plm_status plm_peers_read(const char *run, const char *role, char **json, struct plm_error *error);
void plm_peers_remove(const char *run, const char *role);

/* Replaces a small file of the run folder as a whole, through NAME.tmp, without syncing it to disk.
 * One process writes it. */
plm_status plm_run_tell(const char *run, const char *name, const char *text,
                        struct plm_error *error);

/* The run's id: drawn at random once, and kept in endpoints.json. */
plm_status plm_run_id(const char *run, struct plm_hash *id, struct plm_error *error);

/* CORPUS: the corpus that the run trains on (of a mixture, the first one), so that a stage which
 * was not told it accepts no other. */
struct plm_run_corpus {
  struct plm_hash fingerprint; /* by which the run knows it; zero: it does not */
  struct plm_hash root; /* which packers prove; another one after an upgrade; zero: not known */
};
/* The trainer, which holds the run's lock, writes it. Nothing is written if the fingerprint is
 * zero, or if the file says so already. */
plm_status plm_run_corpus_write(const char *run, const struct plm_run_corpus *corpus,
                                struct plm_error *error);
/* All zeros if there is no such file. PLM_FORMAT. */
plm_status plm_run_corpus_read(const char *run, struct plm_run_corpus *corpus,
                               struct plm_error *error);

/* Says that the stage can work: writes one newline to the descriptor in PLM_READY_FD and closes it.
 * Does nothing without the variable. */
void plm_ready(void);

#endif
