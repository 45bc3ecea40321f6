/* Names of architectures, objectives and attention masks: printing and parsing them. */
#include <stdio.h>
#include <string.h>

#include "common/model/model_config.h"

const char *const plm_objective_names[] = {
    "mlm",        "masked_diffusion", "causal", "regression", "classification",
    "multilabel", "residues",         NULL};
const char *const plm_recompute_names[] = {"none", "mlp", "block", NULL};

/* Bit i of plm_attention_kind. */
static const char *const attention_names[] = {"document", "causal", "local", "block"};
enum { ATTENTION_KINDS = 4 };

const char *plm_architecture_name(enum plm_architecture architecture)
{
  return plm_architecture_names[architecture];
}

const char *plm_objective_name(enum plm_objective objective)
{
  return plm_objective_names[objective];
}

bool plm_objective_is_labels(enum plm_objective objective)
{
  return objective >= PLM_OBJECTIVE_REGRESSION;
}

void plm_attention_kind_name(unsigned kinds, char name[64])
{
  int used = snprintf(name, 64, "document");
  for (int i = 1; i < ATTENTION_KINDS; i++) {
    if ((kinds & (1u << i)) != 0) {
      used += snprintf(name + used, 64 - (size_t)used, "+%s", attention_names[i]);
    }
  }
}

plm_status plm_attention_kind_parse(const char *name, uint8_t *kinds, struct plm_error *error)
{
  unsigned bits = PLM_ATTENTION_DOCUMENT;
  for (const char *word = name;;) {
    const size_t length = strcspn(word, "+");
    int kind = -1;
    for (int i = 0; i < ATTENTION_KINDS; i++) {
      if (strlen(attention_names[i]) == length && strncmp(word, attention_names[i], length) == 0) {
        kind = i;
      }
    }
    if (kind < 0) {
      return plm_error_set(error, PLM_FORMAT,
                           "\"%.80s\" is not document, causal, local, block, or these joined by +",
                           name);
    }
    bits |= 1u << kind;
    if (word[length] == '\0') break;
    word += length + 1;
  }
  *kinds = (uint8_t)bits;
  return PLM_OK;
}
