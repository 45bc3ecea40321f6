/* The trainer: one run, from its folder and configuration to DONE.
 *
 *   open   locks the run, finds its newest checkpoint, binds sockets, allocates all memory
 *   run    trains and publishes until the last step, a stop signal or an error
 *   close  waits for the writer and releases everything
 *
 * See doc/training.md.
 */
#ifndef PLM_TRAINER_TRAINER_H
#define PLM_TRAINER_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/early_stop.h"
#include "common/config/config.h"
#include "common/config/corpus_paths.h"
#include "common/feed/feed.h"
#include "common/feed/feed_run.h"
#include "common/huggingface/head_json.h"
#include "common/model/model.h"
#include "common/run/run.h"
#include "common/run/run_pulse.h"
#include "common/wire/announce.h"
#include "trainer/checkpoint/publish.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/input/data_mixture.h"
#include "trainer/input/input.h"
#include "trainer/input/objective.h"
#include "trainer/input/source_schemas.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/profile/profile.h"
#include "trainer/ranks/owners.h"
#include "trainer/ranks/ranks.h"
#include "trainer/step/health.h"
#include "trainer/step/step.h"
#include "trainer/step/step_report.h"

/* {0} before plm_trainer_open. */
struct plm_trainer {
  const struct plm_config *config; /* borrowed */
  struct plm_ranks *ranks;         /* borrowed */
  uint32_t *owners;                /* by parameter; owned */
  struct plm_held held;            /* what this rank updates */
  const char *run;                 /* its folder */
  struct plm_hash run_id;
  struct plm_lock *lock;
  struct plm_run_pulse pulse; /* of rank 0; once it has stepped, only while it waits */
  char keys[PLM_PATH_SIZE];   /* the folder of CURVE keys */
  struct plm_trainer_state state;
  bool complete;                          /* nothing is left to train */
  bool stops_early;                       /* rank 0: trainer.stop_when has ended the run */
  struct plm_early_stop_reports reports;  /* for it: what the evaluator has reported */
  struct plm_hash roots[PLM_MAX_SOURCES]; /* of the corpora; zero: not known yet */
  bool saved; /* a checkpoint of saved_step is published or being written */
  uint64_t saved_step;
  uint64_t failures_remembered; /* failures of the publisher that state.history contains */

  struct plm_ops *ops;
  bool tuning; /* product algorithms are being measured, until a step has met every shape */
  struct plm_model *model;
  struct plm_carried_tensors carried; /* rank 0: written with the weights of each checkpoint */
  struct plm_frozen_tensors frozen;   /* rank 0: likewise */
  struct plm_masks *masks;
  struct plm_objective_state objective;
  /* Of a run that trains labels (open_labels.h). */
  const struct plm_label_source *labels; /* NULL: it does not */
  struct plm_config labelled_config;     /* what config points to then: it has the whole head */
  struct plm_label_schemas label_schemas;
  struct plm_label_choice label_choice;
  struct plm_label_source label_source;
  struct plm_label_names label_names;
  float *class_weights; /* device; NULL: all are 1 */
  struct plm_optimizer *optimizer;
  struct plm_clip clip;
  struct plm_step *step;
  struct plm_input *input;

  struct plm_corpus_paths corpora; /* what the feed sends to hosts without a copy */
  struct plm_feed *feed;
  struct plm_feed_run *feed_run;
  /* The thread that asks the feed for inputs counts its turns while it waits there, and how many
   * packers there are. turns_seen: by the thread that trains, which waits for that one. */
  _Atomic uint32_t feed_turns, feed_packers;
  uint32_t turns_seen;
  bool awaits_labels; /* the thread that opens the run waits for the feed itself */
  struct plm_announcer *announcer;
  struct plm_publisher *publisher;
  bool snapshot_on_its_way; /* copies into it may still run, so the writer does not have it yet */
  struct plm_step_report *report;
  struct plm_profile *profile; /* NULL: none */
  uint64_t write_profiled_ns;  /* the end of the last written checkpoint that it knows */

  struct plm_health health;
  struct plm_source_totals source_totals;

  bool stepped;             /* this process has finished a step */
  double last_step_s;       /* duration of the previous step; 0 if there was none */
  double checkpoint_s;      /* time lost to checkpoints since the last line of metrics */
  uint64_t step_started_ns; /* of the running step */
  uint64_t last_look_ns;    /* when we last saw that nobody had asked to stop */
};

/* Borrows config and ranks. fingerprints: of the corpora; with
 * none, one corpus is that of the first packer. On failure everything is released. PLM_INTERRUPTED,
 * on all ranks: a stop signal came while it waited for a packer, and no step was done. */
plm_status plm_trainer_open(struct plm_trainer *trainer, const struct plm_config *config,
                            struct plm_ranks *ranks, const struct plm_fingerprints *fingerprints,
                            struct plm_error *error);
/* PLM_OK if the run is complete, or if a stop signal ended it and its state is published. */
plm_status plm_trainer_run(struct plm_trainer *trainer, struct plm_error *error);
/* Whether nothing is left to train. */
bool plm_trainer_is_complete(const struct plm_trainer *trainer);
void plm_trainer_close(struct plm_trainer *trainer);

/* What is known between two micro-batches after a stop signal. */
struct plm_grace {
  double limit_s;       /* trainer.stop_timeout_s */
  double since_stop_s;  /* upper bound of the time since the signal */
  double step_s;        /* the step has run for this long */
  double last_step_s;   /* duration of the previous step; 0 if there was none */
  double publish_s;     /* writing the last checkpoint took this long */
  uint32_t done, total; /* micro-batches */
};
/* Whether too little time is left for the rest of the step, judged by the previous step or else by
 * this step's pace so far, and for writing a checkpoint. */
bool plm_grace_is_short(const struct plm_grace *grace);

/* Prints the memory estimate of a configuration to stdout. Creates and changes no file. */
plm_status plm_trainer_dry_run(const struct plm_config *config, bool json, struct plm_error *error);

#endif
