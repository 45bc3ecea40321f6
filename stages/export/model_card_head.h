/* The YAML head of a model card, which the Hub reads
 * (https://github.com/huggingface/hub-docs/blob/main/modelcard.md). */
#ifndef PLM_STAGES_EXPORT_MODEL_CARD_HEAD_H
#define PLM_STAGES_EXPORT_MODEL_CARD_HEAD_H

#include "common/base/text/text.h"
#include "stages/export/card_facts.h"

/* Appends the head, from its first --- to its last. */
void plm_model_card_head(const struct plm_card_facts *facts, struct plm_text *text);

#endif
