/* The run folder: its layout, locks, endpoints and readiness. Every stage uses it, whoever started
 * the stage. */
#ifndef PLM_COMMON_RUN_RUN_H
#define PLM_COMMON_RUN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/status.h"

/* runs/NAME/...: the paths, from the run folder. */
#define PLM_RUN_CONFIG "pipeline.yaml"
#define PLM_RUN_TRAINER_METRICS "trainer.jsonl"
#define PLM_RUN_EVALUATOR_METRICS "evaluator.jsonl"
#define PLM_RUN_PACKER_METRICS "packers.jsonl"
#define PLM_RUN_CHECKPOINTS "checkpoints"
#define PLM_RUN_ENDPOINTS "endpoints.json"
#define PLM_RUN_DONE "DONE"
#define PLM_RUN_LOGS "logs"
#define PLM_RUN_TENSORBOARD "tensorboard"

/* A lock of one writer: NAME.lock with host, pid and incarnation as JSON, held by fcntl (OFD) for
 * as long as the process lives. PLM_BUSY names the holder. */
struct plm_lock;
plm_status plm_lock_take(const char *run, const char *name, struct plm_lock **lock,
                         struct plm_error *error);
/* Reads the file again: PLM_BUSY when somebody else's incarnation stands there by now. */
plm_status plm_lock_check(const struct plm_lock *lock, struct plm_error *error);
void plm_lock_release(struct plm_lock *lock); /* NULL is fine */
/* Who holds it: PLM_NOT_FOUND when nobody does. */
struct plm_lock_holder {
  char host[256];
  int pid;
  uint64_t incarnation;
};
plm_status plm_lock_holder(const char *run, const char *name, struct plm_lock_holder *holder,
                           struct plm_error *error);

/* endpoints.json (0600): merged under a lock file, replaced atomically. Keys: "feed",
 * "evaluation_feed", "announcements", "run_id". */
plm_status plm_endpoint_write(const char *run, const char *key, const char *value,
                              struct plm_error *error);
/* PLM_NOT_FOUND while it is not there. value: 512 bytes. */
plm_status plm_endpoint_read(const char *run, const char *key, char value[512],
                             struct plm_error *error);
void plm_endpoint_remove(const char *run, const char *key);
/* The supervisor's word, beside the endpoints ("packers": "fatal"): all packers that it had are
 * given up. */
bool plm_run_packers_given_up(const char *run);

/* peers.trainer.json, peers.evaluator.json: who serves that consumer's feed now, as the array of
 * plm_feed_peers_json(); written anew about once a second by the consumer, which holds the lock of
 * the same name, and removed when it ends. role: "trainer" or "evaluator". Not synced to disk. */
plm_status plm_peers_write(const char *run, const char *role, const char *json,
                           struct plm_error *error);
/* The caller frees *json. PLM_NOT_FOUND: no such consumer, or it has not written for 10 s. */
plm_status plm_peers_read(const char *run, const char *role, char **json, struct plm_error *error);
void plm_peers_remove(const char *run, const char *role);

/* The run's id: made once (random), kept in endpoints.json's sibling run_id. */
plm_status plm_run_id(const char *run, struct plm_hash *id, struct plm_error *error);

/* DONE: step and identity of the last checkpoint. */
plm_status plm_done_write(const char *run, uint64_t step, struct plm_hash identity,
                          struct plm_error *error);
plm_status plm_done_read(const char *run, uint64_t *step, struct plm_hash *identity,
                         struct plm_error *error); /* PLM_NOT_FOUND */

/* Readiness: writes one newline to the descriptor in PLM_READY_FD and closes it; nothing when the
 * variable is absent. Call once the stage can work. */
void plm_ready(void);

#endif
