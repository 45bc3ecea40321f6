/* The part of the model card about evaluator.tasks. */
#ifndef PLM_STAGES_EXPORT_MODEL_CARD_TASKS_H
#define PLM_STAGES_EXPORT_MODEL_CARD_TASKS_H

#include "common/base/text/text.h"
#include "stages/export/card_facts.h"

/* Appends a table with the measures of each task; nothing if there are none. */
void plm_model_card_tasks(const struct plm_card_facts *facts, struct plm_text *text);

#endif
