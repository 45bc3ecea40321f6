/* The backend that a run trains on, and the connection of its ranks. */
#ifndef PLM_TRAINER_OPEN_OPEN_DEVICE_H
#define PLM_TRAINER_OPEN_OPEN_DEVICE_H

#include <stdbool.h>

#include "trainer/trainer.h"

/* Opens the backend, decides trainer->state.resolved, connects the ranks and begins to tune
 * products if that is needed. resumed: the state is that of a checkpoint, whose choices hold. */
plm_status plm_open_device(struct plm_trainer *trainer, bool resumed, struct plm_error *error);
/* After everything that uses the backend. */
void plm_close_device(struct plm_trainer *trainer);

#endif
