/* The trainer: one run, from its folder and configuration to DONE.
 *
 *   open   locks the run, finds where it stands, binds, takes all memory
 *   run    steps and publishes until the last step, a stop signal or an error
 *   close  waits for the writer and lets everything go
 */
#ifndef PLM_TRAINER_TRAINER_H
#define PLM_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/feed/feed.h"
#include "common/feed/feed_run.h"
#include "common/model/model.h"
#include "common/run/run.h"
#include "common/wire/announce.h"
#include "trainer/clip.h"
#include "trainer/input.h"
#include "trainer/objective.h"
#include "trainer/optimizers.h"
#include "trainer/publish.h"
#include "trainer/step.h"
#include "trainer/step_report.h"
#include "trainer/trainer_state.h"

/* {0} to begin. */
struct plm_trainer {
  const struct plm_config *config; /* borrowed */
  const char *run;                 /* its folder */
  struct plm_hash run_id;
  struct plm_lock *lock;
  struct plm_trainer_state state;
  bool complete; /* nothing is left to train */
  bool saved;    /* saved_step is in a checkpoint, or on its way there */
  uint64_t saved_step;
  uint64_t failures_remembered; /* the publisher's, in state.history */

  struct plm_ops *ops;
  bool tuning; /* products are measured: until a step has met every shape */
  struct plm_model *model;
  struct plm_masks *masks;
  struct plm_objective_state objective;
  struct plm_optimizer *optimizer;
  struct plm_clip clip;
  struct plm_step *step;
  struct plm_input *input;

  struct plm_feed *feed;
  struct plm_feed_run *feed_run;
  struct plm_announcer *announcer;
  struct plm_publisher *publisher;
  bool snapshot_on_its_way; /* taken, but its copies were not waited for: not submitted yet */
  struct plm_step_report *report;

  double last_step_s;       /* 0: none yet */
  double checkpoint_s;      /* stall not yet written into a line */
  uint64_t step_started_ns; /* of the step at work */
  uint64_t last_look_ns;    /* when nobody had asked to stop */
};

/* fingerprint: of the corpus, zero when not known. On failure everything taken is released. */
plm_status plm_trainer_open(struct plm_trainer *trainer, const struct plm_config *config,
                            struct plm_hash fingerprint, struct plm_error *error);
/* PLM_OK: complete, or drained after a stop signal with everything published. */
plm_status plm_trainer_run(struct plm_trainer *trainer, struct plm_error *error);
void plm_trainer_close(struct plm_trainer *trainer);

/* A part of opening: binds the feed at the run's position and the announcements, and says where in
 * endpoints.json. */
plm_status plm_trainer_open_feed(struct plm_trainer *trainer, struct plm_error *error);

/* Prints the memory that a configuration takes, to stdout; touches nothing. */
plm_status plm_trainer_dry_run(const struct plm_config *config, bool json, struct plm_error *error);

/* Chunks of a step and of a micro-batch. */
uint32_t plm_trainer_step_chunks(const struct plm_config *config);
uint32_t plm_trainer_micro_chunks(const struct plm_config *config);

#endif
