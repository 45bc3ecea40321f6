/* A row for each measure of a task. */
#include "stages/export/model_card_tasks.h"

#include <math.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/metrics/measure_table.h"
#include "common/metrics/metrics.h"

#define ROW(measure, name, type, words, ...) {#name, words},
/* In the order of the table. */
static const struct {
  const char *field, *name;
} measures[] = {
    PLM_MEASURES_OF_NUMBERS_EACH(ROW) PLM_MEASURES_OF_CLASSES_EACH(ROW){"auc", "AUC"},
    {"ndcg", "NDCG"},
    {"top_recall", "recall of the best variants"},
    {"precision_l", "precision of contacts at L"},
    {"precision_l2", "precision of contacts at L/2"},
    {"precision_l5", "precision of contacts at L/5"},
};
#undef ROW

static void put_interval(const cJSON *line, const char *field, struct plm_text *text)
{
  const cJSON *lows = cJSON_GetObjectItemCaseSensitive(line, "low");
  const cJSON *highs = cJSON_GetObjectItemCaseSensitive(line, "high");
  const double low = plm_json_number(lows, field, NAN), high = plm_json_number(highs, field, NAN);
  if (isfinite(low) && isfinite(high)) plm_text_printf(text, " [%.3f, %.3f]", low, high);
}

static void put_task(const cJSON *line, struct plm_text *text)
{
  const cJSON *baseline = cJSON_GetObjectItemCaseSensitive(line, "baseline");
  const double chance = plm_json_number(line, "chance", NAN);
  for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
    const double value = plm_json_number(line, measures[i].field, NAN);
    if (!isfinite(value)) continue;
    plm_text_printf(text, "| %s | %s | %.3f", plm_metrics_set(line), measures[i].name, value);
    put_interval(line, measures[i].field, text);
    const double other = plm_json_number(baseline, measures[i].field, chance);
    plm_text_printf(text, isfinite(other) ? " | %.3f |\n" : " | – |\n", other);
  }
}

void plm_model_card_tasks(const struct plm_card_facts *facts, struct plm_text *text)
{
  if (cJSON_GetArraySize(facts->tasks) == 0) return;
  plm_text_puts(text, "\n## Tasks\n\n| task | measure | value | without a model |\n"
                      "|---|---|---:|---:|\n");
  for (const cJSON *line = facts->tasks->child; line != NULL; line = line->next)
    put_task(line, text);
  plm_text_puts(text, "\nMeasured with this model as it is, by linear models on its embeddings, by "
                      "its scores of variants or by its attention maps. Without a model: the same "
                      "from the composition of the sequences, or by chance.\n");
}
