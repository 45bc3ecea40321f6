/* Checkpoints as the training loop sees them: taking a snapshot of the state, handing it to the
 * writer (publish.h), and judging the result. With several ranks all of them call the same
 * functions; rank 0 collects and writes. */
#ifndef PLM_TRAINER_TRAINER_SAVE_H
#define PLM_TRAINER_TRAINER_SAVE_H

#include "trainer/trainer.h"

/* Whether steps run on a device while this thread continues. */
bool plm_computes_beside(const struct plm_trainer *trainer);

/* Starts copying the state into a snapshot, after waiting until the writer has released the last
 * one. The time spent here is counted in checkpoint_s. On other ranks than the first, *snapshot is
 * NULL. */
plm_status plm_save_begin(struct plm_trainer *trainer, struct plm_snapshot **snapshot,
                          struct plm_error *error);
/* Completes the snapshot with trainer.json, which states the length of trainer.jsonl; the step's
 * line is therefore written first. On a device, the copies may still run; the writer then gets the
 * snapshot during the next step. */
void plm_save_submit(struct plm_trainer *trainer, struct plm_snapshot *snapshot);
/* Tells the profile, if there is one, which checkpoint was written since the last call. With
 * `wait`, after the writer is idle. */
void plm_save_tell_profile(struct plm_trainer *trainer, bool wait);
/* Waits for the copies of the pending snapshot, if there is one, and gives it to the writer. */
void plm_save_hand_over(struct plm_trainer *trainer);

/* Too many failed checkpoints in a row end the run, and so does another trainer that has taken the
 * lock. With `wait`, waits for the writer, and any failure is an error. */
plm_status plm_save_check(struct plm_trainer *trainer, bool wait, struct plm_error *error);
/* Publishes the current state, unless that was already done, and waits until it is published. */
plm_status plm_save_now(struct plm_trainer *trainer, struct plm_error *error);

#endif
