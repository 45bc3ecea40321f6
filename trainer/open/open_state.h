/* The first stage of opening: the run folder, and the state of the run in it. */
#ifndef PLM_TRAINER_OPEN_OPEN_STATE_H
#define PLM_TRAINER_OPEN_OPEN_STATE_H

#include <stdbool.h>

#include "common/base/files/file.h"
#include "trainer/trainer.h"

/* Rank 0 takes the folder's lock and finds the run's newest checkpoint, into directory, and the
 * state in it; the other ranks receive the state. *resumed: there is a checkpoint. Sets
 * trainer->complete if nothing is left to train. A resume that is refused changes neither `latest`
 * nor CORPUS nor DONE. */
plm_status plm_open_state(struct plm_trainer *trainer, const struct plm_fingerprints *fingerprints,
                          char directory[PLM_PATH_SIZE], bool *resumed, struct plm_error *error);
/* Releases the state and the lock. */
void plm_close_state(struct plm_trainer *trainer);

/* Writes CORPUS into the run folder, as far as the corpus is known. */
plm_status plm_trainer_pin_corpus(const struct plm_trainer *trainer, struct plm_error *error);

#endif
