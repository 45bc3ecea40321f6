/* The weights that a new run begins with. */
#ifndef PLM_TRAINER_OPEN_FIRST_WEIGHTS_H
#define PLM_TRAINER_OPEN_FIRST_WEIGHTS_H

#include "trainer/trainer.h"

/* Gives the model the weights that trainer.init_from names, or draws them with the run's seed, and
 * begins the average of weights with them. With several ranks, all call it; rank 0 reads or draws
 * and sends to the others. PLM_CONFIG for every defect of the folder of init_from. */
plm_status plm_first_weights(struct plm_trainer *trainer, struct plm_error *error);
/* On rank 0: copies what every checkpoint has unchanged from the weights at path: frozen tensors,
 * and those that are no parameters. */
plm_status plm_keep_tensors(struct plm_trainer *trainer, const char *path, struct plm_error *error);

#endif
