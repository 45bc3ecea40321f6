/* What computes a step: model, masks, objective, optimizer and the step itself. */
#ifndef PLM_TRAINER_OPEN_OPEN_MODEL_H
#define PLM_TRAINER_OPEN_OPEN_MODEL_H

#include "trainer/trainer.h"

/* Allocates all of it on the open backend. PLM_NO_MEMORY says what would fit. */
plm_status plm_open_model(struct plm_trainer *trainer, struct plm_error *error);
/* Loads the tensors of the checkpoint in directory, which only rank 0 reads. */
plm_status plm_load_weights(struct plm_trainer *trainer, const char *directory,
                            struct plm_error *error);
/* Releases what is open. */
void plm_close_model(struct plm_trainer *trainer);

#endif
