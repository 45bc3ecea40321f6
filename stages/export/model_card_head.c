/* The YAML head of a model card: see model_card_head.h. */
#include "stages/export/model_card_head.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

#include "common/base/text/json.h"
#include "common/metrics/metrics.h"
#include "common/model/architecture.h"
#include "stages/export/model_card_parts.h"

/* A further held-out set, of which the card knows only the name. */
static void put_set(const char *set, const char *split, struct plm_text *text)
{
  char name[128];
  snprintf(name, sizeof name, "%s, split %s", set, split);
  plm_text_puts(text, "        dataset:\n          type: plm-corpus\n          name: ");
  plm_card_put_quoted(text, name);
  plm_text_printf(text, "\n          split: %s\n", split);
}

static void put_dataset(const struct plm_card_facts *facts, const char *split,
                        struct plm_text *text)
{
  char name[400], base[256], how[80] = "";
  const char *corpus =
      facts->config.corpus != NULL ? plm_card_base_name(facts->config.corpus, base) : "corpus";
  if (facts->corpus_known && !facts->corpus.info.clustered)
    snprintf(how, sizeof how, " (split %s)", plm_corpus_split_words(false));
  snprintf(name, sizeof name, "%.200s, split %.20s%s", corpus, split, how);
  plm_text_puts(text, "        dataset:\n          type: plm-corpus\n          name: ");
  plm_card_put_quoted(text, name);
  plm_text_printf(text, "\n          split: %s\n", split);
  plm_text_puts(text, "          revision: ");
  plm_card_put_quoted(text, facts->fingerprint);
  plm_text_puts(text, "\n");
}

/* Writes how much of the split was evaluated. */
static void put_arguments(const struct plm_card_facts *facts, const cJSON *line,
                          struct plm_text *text)
{
  const bool masks = !plm_card_predicts_labels(facts) && !plm_card_is_causal(facts);
  const double rate = masks ? plm_card_mask_rate(line) : (double)NAN;
  const char *predicted = plm_card_predicts_labels(facts) ? "labels" : "tokens";
  enum plm_split split;
  plm_text_printf(text, "          args:\n            predicted_%s: %.0f\n", predicted,
                  plm_json_number(line, predicted, 0));
  if (!isnan(rate)) plm_text_printf(text, "            mask_rate: %g\n", rate);
  if (!facts->corpus_known || plm_metrics_is_extra(line) ||
      plm_split_parse(plm_json_string(line, "split", ""), &split, NULL) != PLM_OK)
    return;
  const struct plm_corpus_split *counts = &facts->corpus.info.splits[split];
  plm_text_printf(text, "            split_sequences: %llu\n            split_residues: %llu\n",
                  (unsigned long long)counts->documents, (unsigned long long)counts->residues);
}

/* The pipeline of transformers that can load the model. A causal one is no AutoModelForCausalLM. */
static const char *pipeline_of(const struct plm_card_facts *facts)
{
  switch (facts->folder->model.head.kind) {
  case PLM_PREDICTS_SEQUENCES: return "text-classification"; /* also for numbers */
  case PLM_PREDICTS_RESIDUES: return "token-classification";
  default: return plm_card_is_causal(facts) ? "feature-extraction" : "fill-mask";
  }
}

static void put_result(const struct plm_card_facts *facts, const cJSON *line, struct plm_text *text)
{
  const char *split = plm_json_string(line, "split", "");
  const bool labels = plm_card_predicts_labels(facts);
  plm_text_printf(text, "      - task:\n          type: %s\n          name: %s\n",
                  labels                      ? pipeline_of(facts)
                  : plm_card_is_causal(facts) ? "text-generation"
                                              : "fill-mask",
                  labels                      ? "Labels"
                  : plm_card_is_causal(facts) ? "Next token"
                                              : "Masked token");
  if (plm_metrics_is_extra(line))
    put_set(plm_metrics_set(line), split, text);
  else
    put_dataset(facts, split, text);
  put_arguments(facts, line, text);
  plm_text_puts(text, "        metrics:\n");
  for (const struct plm_card_metric *metric = plm_card_metrics(facts); metric->field != NULL;
       metric++) {
    const double value = plm_json_number(line, metric->field, NAN);
    if (!isfinite(value)) continue;
    plm_text_printf(text, "          - type: %s\n            value: %.6f\n            name: ",
                    metric->type, value);
    plm_card_put_quoted(text, metric->name);
    plm_text_puts(text, "\n");
  }
}

void plm_model_card_head(const struct plm_card_facts *facts, struct plm_text *text)
{
  const bool masks = !plm_card_predicts_labels(facts) && !plm_card_is_causal(facts);
  plm_text_puts(text, "---\nlibrary_name: transformers\n");
  if (facts->license != NULL)
    plm_text_printf(text, "license: %s\n", facts->license);
  else /* the Hub requires a licence from its list */
    plm_text_puts(text, "# to be chosen from "
                        "https://huggingface.co/docs/hub/repositories-licenses\n"
                        "license: unknown\n");
  plm_text_printf(text, "pipeline_tag: %s\n", pipeline_of(facts));
  if (masks) plm_text_puts(text, "mask_token: \"<mask>\"\n");
  plm_text_puts(text, "tags:\n");
  if (plm_card_is_protein(facts))
    plm_text_puts(text, "  - biology\n  - protein\n  - protein-language-model\n");
  plm_text_printf(text, "  - %s\n", plm_architecture_name(facts->folder->model.architecture));
  if (!plm_card_predicts_labels(facts))
    plm_text_printf(text, "  - %s\n", plm_objective_name(facts->folder->objective));
  plm_text_puts(text, "  - plm-pipeline\n");
  if (masks && plm_card_is_protein(facts))
    plm_text_puts(text, "widget:\n  - text: \"MKTAYIAKQR<mask>ISFVKSHFSRQLEERLGLIEVQ\"\n");
  if (cJSON_GetArraySize(facts->evaluations) > 0) {
    plm_text_puts(text, "metrics:\n");
    for (const struct plm_card_metric *metric = plm_card_metrics(facts); metric->field != NULL;
         metric++)
      if (!plm_card_predicts_labels(facts) ||
          plm_card_has_metric(facts->evaluations, metric->field))
        plm_text_printf(text, "  - %s\n", metric->type);
    plm_text_puts(text, "model-index:\n  - name: ");
    plm_card_put_quoted(text, facts->name);
    plm_text_puts(text, "\n    results:\n");
    for (const cJSON *line = facts->evaluations->child; line != NULL; line = line->next)
      put_result(facts, line, text);
  }
  plm_text_puts(text, "---\n\n");
}
