/* Writes a snapshot in host memory as a checkpoint folder. The order of its steps is explained in
 * doc/checkpoints.md. */
#ifndef PLM_TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H
#define PLM_TRAINER_CHECKPOINT_CHECKPOINT_FOLDER_H

#include <stdint.h>

#include "common/base/numbers/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/carried_tensors.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/frozen_tensors.h"
#include "common/checkpoint/retention.h"
#include "common/config/config.h"
#include "common/metrics/metrics.h"
#include "common/model/model.h"
#include "common/run/run.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/optimizers.h"

/* The state after `step` steps, in host memory. */
struct plm_snapshot {
  uint64_t step;
  float *weights;        /* those that are trained, at the offsets of the parameter table */
  float *average;        /* likewise, or NULL */
  float *first, *second; /* the optimizer's arenas */
  double clip_norms[PLM_CLIP_HISTORY];
  uint32_t clip_count;
  char *trainer_json; /* malloc'd */
};

/* What a checkpoint says about the model, and which checkpoints are kept. */
struct plm_checkpoint_options {
  const struct plm_model_config *model;
  enum plm_objective objective;
  enum plm_tokenizer_kind tokenizer;
  const struct plm_config_checkpoint *rules;
  struct plm_retention_judge judge; /* by what the best checkpoints are chosen */
};

/* What is the same for all checkpoints of a run. All pointers are borrowed. */
struct plm_checkpoint_context {
  const char *run;
  struct plm_checkpoint_options options;
  const struct plm_label_names *labels; /* what the model predicts; NULL: no labels */
  const struct plm_parameter *table;
  size_t table_count;
  const struct plm_frozen_tensors *frozen;   /* NULL: the snapshot has all parameters */
  const struct plm_carried_tensors *carried; /* written with the weights; NULL: none */
  const struct plm_optimizer_tensor *tensors;
  size_t tensor_count;
  struct plm_metrics_file *metrics; /* synced first, because trainer.json states its length */
  struct plm_lock *lock;            /* checked again just before the rename */
};

/* Writes `.tmp-step_…`, syncs everything, renames it, syncs the parent folder and moves `latest`.
 * identity receives the hash of model.safetensors, manifest that of MANIFEST. On failure the
 * temporary folder is removed and earlier checkpoints are intact. PLM_BUSY if another trainer has
 * the lock. */
plm_status plm_checkpoint_folder_publish(const struct plm_checkpoint_context *context,
                                         const struct plm_snapshot *snapshot,
                                         struct plm_hash *identity, struct plm_hash *manifest,
                                         struct plm_error *error);

/* Removes `.tmp-*` from the folder, which interrupted publishing or deletion leaves behind. */
plm_status plm_checkpoint_folder_clean(const char *checkpoints, struct plm_error *error);

#endif
