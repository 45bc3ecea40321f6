/* trainer.init_from: where a fresh run's first weights come from. */
#ifndef PLM_TRAINER_INIT_FROM_H
#define PLM_TRAINER_INIT_FROM_H

#include "common/base/status.h"
#include "common/model/model.h"

/* The weights of a checkpoint or a Hugging Face folder of our model (model_folder.h) into the
 * model, nothing else: EMA weights where the folder has any, so that a run begins where the
 * evaluator left the other one, and a checkpoint and its export are the same start. PLM_CONFIG when
 * the folder is none, does not verify or holds another model: starting again would mend nothing. */
plm_status plm_init_from(const char *directory, struct plm_model *model, struct plm_error *error);

#endif
