/* What the sections of a model card share. */
#ifndef PLM_STAGES_EXPORT_MODEL_CARD_PARTS_H
#define PLM_STAGES_EXPORT_MODEL_CARD_PARTS_H

#include <stdbool.h>

#include "common/base/text/text.h"
#include "stages/export/card_facts.h"

/* The evaluator's metrics, under the names of https://huggingface.co/metrics if they have one. */
struct plm_card_metric {
  const char *field, *type, *name; /* field NULL: the end of the list */
};
struct cJSON;
/* Those of a language model or of a model that predicts labels. */
const struct plm_card_metric *plm_card_metrics(const struct plm_card_facts *facts);
/* Whether one of the lines has a number of this field. */
bool plm_card_has_metric(const struct cJSON *lines, const char *field);

bool plm_card_is_causal(const struct plm_card_facts *facts);
bool plm_card_is_protein(const struct plm_card_facts *facts);
/* Whether it has a head for labels instead of the language model's. */
bool plm_card_predicts_labels(const struct plm_card_facts *facts);
/* Whether transformers has the class of the model. */
bool plm_card_is_published(const struct plm_card_facts *facts);

/* The last part of a path; the rest is of no interest to others. The path may come from a copied
 * run, so whatever means something in Markdown, HTML or YAML is replaced. */
const char *plm_card_base_name(const char *path, char name[256]);
/* Writes a string as JSON does, which is also a YAML scalar and a Python string. */
void plm_card_put_quoted(struct plm_text *text, const char *string);
/* The mask rate that a line's loss belongs to; NAN if nothing was masked. */
double plm_card_mask_rate(const struct cJSON *line);

#endif
