/* One checkpoint on its way to the disk: from a snapshot in host memory to a folder with its final
 * name. Order and meaning: checkpoints.md, "Publishing". */
#ifndef PLM_TRAINER_CHECKPOINT_FOLDER_H
#define PLM_TRAINER_CHECKPOINT_FOLDER_H

#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/checkpoint/checkpoint.h"
#include "common/config/config.h"
#include "common/metrics/metrics.h"
#include "common/model/model.h"
#include "common/run/run.h"
#include "trainer/clip.h"
#include "trainer/optimizers.h"

/* The state after `step` steps, on the host. */
struct plm_snapshot {
  uint64_t step;
  float *weights;        /* arena layout of the parameter table */
  float *average;        /* the same, or NULL */
  float *first, *second; /* the optimizer's arenas */
  double clip_norms[PLM_CLIP_HISTORY];
  uint32_t clip_count;
  char *trainer_json; /* malloc'd */
};

/* What stays the same from one checkpoint to the next; all borrowed. */
struct plm_checkpoint_context {
  const char *run;
  const struct plm_config *config;
  const struct plm_parameter *table;
  size_t table_count;
  const struct plm_optimizer_tensor *tensors;
  size_t tensor_count;
  struct plm_metrics_file *metrics; /* fsynced first: trainer.json states its length */
  const struct plm_lock *lock;      /* read again just before the rename */
};

/* Writes `.tmp-step_…`, fsyncs everything, renames, fsyncs the parent, moves `latest`. identity
 * receives the hash of model.safetensors, manifest that of MANIFEST. On failure the temporary
 * folder is removed and what stood before is intact. PLM_BUSY: another trainer has the lock. */
plm_status plm_checkpoint_folder_publish(const struct plm_checkpoint_context *context,
                                         const struct plm_snapshot *snapshot,
                                         struct plm_hash *identity, struct plm_hash *manifest,
                                         struct plm_error *error);

/* latest -> NAME, replaced by rename. */
plm_status plm_checkpoint_folder_point_latest(const char *checkpoints, const char *name,
                                              struct plm_error *error);

/* Removes what an interrupted publishing or deletion left: `.tmp-*` under the folder. */
plm_status plm_checkpoint_folder_clean(const char *checkpoints, struct plm_error *error);

#endif
