/* What the sections of a model card share: see model_card_parts.h. */
#include "stages/export/model_card_parts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/printable.h"
#include "common/corpus/tokenizer.h"
#include "common/huggingface/huggingface.h"
#include "common/metrics/measure_table.h"
#include "common/model/architecture.h"

static const struct plm_card_metric of_tokens[] = {
    {"loss", "loss", "Cross-entropy (nats per token)"},
    {"perplexity", "perplexity", "Perplexity"},
    {"accuracy", "accuracy", "Accuracy"},
    {"precision", "precision", "Precision (support-weighted)"},
    {"recall", "recall", "Recall (support-weighted)"},
    {"f1", "f1", "F1 (support-weighted)"},
    {"mcc", "matthews_correlation", "Matthews correlation"},
    {NULL, NULL, NULL},
};
#define ROW(measure, name, type, words, title, ...) {#name, type, title},
static const struct plm_card_metric of_labels[] = {
    {"loss", "loss", "Loss of the labels"},
    PLM_MEASURES_OF_CLASSES_EACH(ROW) PLM_MEASURES_OF_NUMBERS_EACH(ROW){NULL, NULL, NULL},
};
#undef ROW

const struct plm_card_metric *plm_card_metrics(const struct plm_card_facts *facts)
{
  return plm_card_predicts_labels(facts) ? of_labels : of_tokens;
}

bool plm_card_has_metric(const cJSON *lines, const char *field)
{
  for (const cJSON *line = lines->child; line != NULL; line = line->next)
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(line, field))) return true;
  return false;
}

bool plm_card_is_causal(const struct plm_card_facts *facts)
{
  return facts->folder->objective == PLM_OBJECTIVE_CAUSAL;
}

bool plm_card_is_protein(const struct plm_card_facts *facts)
{
  return plm_huggingface_tokenizer(&facts->folder->model) == plm_tokenizer_of(PLM_TOKENIZER_ESM);
}

bool plm_card_predicts_labels(const struct plm_card_facts *facts)
{
  return facts->folder->model.head.kind != PLM_PREDICTS_TOKENS;
}

bool plm_card_is_published(const struct plm_card_facts *facts)
{
  return plm_architecture_rules(facts->folder->model.architecture)->published;
}

const char *plm_card_base_name(const char *path, char name[256])
{
  const char *slash = strrchr(path, '/');
  plm_printable(name, 256, slash != NULL && slash[1] != '\0' ? slash + 1 : path,
                PLM_PRINTABLE_LINE);
  for (char *c = name; *c != '\0'; c++)
    if (strchr("<>&|`*[]()\\!#\"'{}", *c) != NULL) *c = '_';
  return name;
}

void plm_card_put_quoted(struct plm_text *text, const char *string)
{
  cJSON *value = cJSON_CreateString(string);
  char *printed = plm_json_text(value, false);
  plm_text_puts(text, printed);
  free(printed);
  cJSON_Delete(value);
}

double plm_card_mask_rate(const cJSON *line)
{
  const double loss = plm_json_number(line, "loss", NAN);
  const cJSON *rates = cJSON_GetObjectItemCaseSensitive(line, "loss_by_mask_rate");
  for (const cJSON *rate = rates != NULL ? rates->child : NULL; rate != NULL; rate = rate->next)
    if (cJSON_IsNumber(rate) && rate->valuedouble == loss) {
      char *end;
      const double value = strtod(rate->string, &end);
      return *end == '\0' && value > 0 && value <= 1 ? value : (double)NAN;
    }
  return (double)NAN;
}
