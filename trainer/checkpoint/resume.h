/* Resuming: the run's newest valid checkpoint and the state in it. */
#ifndef PLM_TRAINER_CHECKPOINT_RESUME_H
#define PLM_TRAINER_CHECKPOINT_RESUME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/files/file.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/ops/open.h"
#include "trainer/checkpoint/trainer_state.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/optimizers.h"
#include "trainer/ranks/ranks.h"

/* Finds the newest checkpoint of a run that verifies. *found is false if the run has no
 * checkpoints. PLM_CORRUPT if it has some but none verifies, since a fresh start would overwrite
 * them. advance (may be NULL): told of the bytes that are verified. */
plm_status plm_resume_find(const char *run, bool *found, uint64_t *step,
                           char directory[PLM_PATH_SIZE], struct plm_advance *advance,
                           struct plm_error *error);

/* Reads the checkpoint's trainer.json into state, whose cursor is initialised, and compares its
 * configuration with config: PLM_CONFIG if a key differs that a resume may not change. Other
 * changes that affect the run are logged and added to the state's history. Sets
 * state->resolved.anew. */
plm_status plm_resume_read_state(const char *directory, const struct plm_config *config,
                                 struct plm_trainer_state *state, struct plm_error *error);

/* What the configuration says about what plm_resolved decides. */
struct plm_resume_options {
  enum plm_device device;
  enum plm_precision precision;
  uint32_t threads; /* 0: all */
  uint32_t ranks;
  uint32_t shares; /* of a step; 0: as many as ranks */
  uint32_t step_chunks;
  enum plm_compress compress;
};

/* Changes the request so that the run continues as it was saved: where options say auto or all, and
 * said so before, the saved choice is taken; threads only for the same number of ranks. request
 * then points into saved. */
void plm_resume_request(const struct plm_resolved *saved, const struct plm_resume_options *options,
                        struct plm_ops_request *request);
/* The number of shares of a resumed run: trainer.shares or, if that is 0, the saved number, unless
 * it does not divide the step any more, or the number of ranks
 * changed to one that would add the shares in another order. */
uint32_t plm_resume_shares(const struct plm_resolved *saved,
                           const struct plm_resume_options *options);
/* That of a new run: trainer.shares, or trainer.ranks if that is 0. */
uint32_t plm_resume_new_shares(const struct plm_resume_options *options);
/* Compares what was opened with the saved choices. For each difference plm_resume_inexact is
 * called. If the device differs, differences that follow from that are left out. */
void plm_resume_compare(struct plm_trainer_state *state, const struct plm_resume_options *options,
                        const struct plm_resolved *today);

/* Logs why the resume is not bit-exact and sets state->exact to false. */
void plm_resume_inexact(struct plm_trainer_state *state, const char *what, const char *before,
                        const char *now);

/* Where the tensors of a checkpoint go. Everything is borrowed. */
struct plm_resume_to {
  struct plm_model *model;
  struct plm_optimizer *optimizer;
  struct plm_clip *clip;
  struct plm_ranks *ranks;
  const uint32_t *owners;      /* by parameter */
  struct plm_advance *advance; /* told of the bytes of each file that is read; or NULL */
};

/* Loads the checkpoint's weights, moments, average and clip history, on rank 0 also for the others.
 * Without ema.safetensors (EMA was off before) the average starts at the weights. */
plm_status plm_resume_load_tensors(const char *directory, const struct plm_resume_to *to,
                                   struct plm_error *error);
/* The other ranks' part of it. */
plm_status plm_resume_receive_tensors(const struct plm_resume_to *to, struct plm_error *error);

/* A run that `auto` has put on the CPU stays there: keeps the reason in `today`, and says so.
 * Called if the device is the same as before. */
void plm_resume_on_cpu(const struct plm_resolved *saved, const struct plm_resume_options *options,
                       struct plm_resolved *today);

#endif
