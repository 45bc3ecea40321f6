/* The model card (README.md) of an export: a YAML head as the Hub expects it
 * (https://github.com/huggingface/hub-docs/blob/main/modelcard.md), a snippet that runs, a
 * description of the model and of its training, and its metrics. */
#ifndef PLM_STAGES_EXPORT_MODEL_CARD_H
#define PLM_STAGES_EXPORT_MODEL_CARD_H

#include "common/base/status.h"
#include "common/base/text/text.h"
#include "stages/export/card_facts.h"

/* Appends the text of the card. */
void plm_model_card_print(const struct plm_card_facts *facts, struct plm_text *text);

#endif
