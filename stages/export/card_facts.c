/* The origin of a model, read from trainer.json, evaluator.jsonl and corpus.json. */
#include "stages/export/card_facts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/checkpoint/trainer_json.h"
#include "common/metrics/metrics.h"
#include "common/run/run.h"

enum { SUBJECT_SIZE = 64 }; /* of a set and a split */

/* ---- training ------------------------------------------------------------------------------ */

static plm_status card_facts_parse_state(struct plm_card_facts *facts, const cJSON *state,
                                         struct plm_error *error)
{
  const char *yaml = plm_json_string(state, "configuration", "");
  const cJSON *counters = cJSON_GetObjectItemCaseSensitive(state, "counters");
  const cJSON *resolved = cJSON_GetObjectItemCaseSensitive(state, "resolved");
  const cJSON *cursor = cJSON_GetObjectItemCaseSensitive(state, "cursor");
  PLM_TRY(plm_config_load_text(yaml, strlen(yaml), &facts->config, error));
  facts->trained = true;
  facts->tokens = plm_json_whole(counters, "tokens", UINT64_MAX, 0);
  facts->epochs = plm_json_number(state, "epoch", (double)NAN);
  const char *precision = plm_json_string(resolved, "precision", "");
  const bool half = strcmp(precision, "bf16") == 0;
  snprintf(facts->precision, sizeof facts->precision, "%s", half ? "bf16" : "fp32");
  struct plm_hash fingerprint;
  if (plm_hash_from_hex(plm_json_string(cursor, "fingerprint", ""), &fingerprint, NULL) == PLM_OK)
    plm_hash_to_hex(fingerprint, facts->fingerprint);
  return PLM_OK;
}

static plm_status gather_training(struct plm_card_facts *facts, struct plm_error *error)
{
  cJSON *state;
  PLM_TRY(plm_trainer_json_read(facts->folder->directory, &state, error));
  if (state == NULL) return PLM_OK;
  const plm_status status = card_facts_parse_state(facts, state, error);
  cJSON_Delete(state);
  if (status != PLM_OK) plm_error_where(error, "%s/trainer.json", facts->folder->directory);
  return status;
}

/* ---- the corpus ---------------------------------------------------------------------------- */

/* If the corpus has moved or been replaced, the card gives only its fingerprint. */
static void gather_corpus(struct plm_card_facts *facts)
{
  struct plm_hash trained_on;
  struct plm_error why = {0};
  if (!facts->trained || facts->config.corpus == NULL) return;
  if (plm_corpus_description_read(facts->config.corpus, &facts->corpus, &why) != PLM_OK) {
    plm_info("the model card says little about the corpus: %s", why.what);
    return;
  }
  facts->corpus_known = plm_hash_from_hex(facts->fingerprint, &trained_on, NULL) == PLM_OK &&
                        plm_corpus_is(&facts->corpus.info, trained_on);
  if (facts->corpus_known) return;
  plm_info("the model card says little about the corpus: %s has changed since",
           facts->config.corpus);
  plm_corpus_description_deinit(&facts->corpus);
}

/* ---- the evaluator's lines ----------------------------------------------------------------- */

/* Whether a line is about this checkpoint and these weights. */
static bool card_facts_is_ours(const struct plm_card_facts *facts, const cJSON *line)
{
  char hex[PLM_HASH_HEX_SIZE];
  plm_hash_to_hex(facts->folder->identity, hex);
  return plm_json_number(line, "step", -1) == (double)facts->folder->step &&
         strcmp(plm_json_string(line, "identity", hex), hex) == 0 &&
         strcmp(plm_json_string(line, "weights", ""), facts->weights) == 0;
}

/* Whether a line without a loss is that of a task which measured something. */
static bool is_of_task(const cJSON *line)
{
  return !cJSON_HasObjectItem(line, "skipped") && !cJSON_HasObjectItem(line, "task_skipped") &&
         plm_metrics_is_extra(line);
}

/* Keeps the last line of each set and split, and of each task. */
static bool card_facts_on_line(void *context, const cJSON *line)
{
  struct plm_card_facts *facts = context;
  const char *split = plm_json_string(line, "split", NULL);
  enum plm_split known;
  char subject[SUBJECT_SIZE], other[SUBJECT_SIZE];
  /* The card quotes the name, and the run may have been copied from anywhere. */
  if (split == NULL || plm_split_parse(split, &known, NULL) != PLM_OK ||
      !card_facts_is_ours(facts, line) || !plm_config_is_set_name(plm_metrics_set(line)))
    return true;
  const bool evaluation = cJSON_HasObjectItem(line, "loss");
  if (!evaluation && !is_of_task(line)) return true;
  cJSON *list = evaluation ? facts->evaluations : facts->tasks;
  plm_metrics_subject(line, subject, sizeof subject);
  for (int i = cJSON_GetArraySize(list) - 1; i >= 0; i--) {
    const cJSON *before = cJSON_GetArrayItem(list, i);
    plm_metrics_subject(before, other, sizeof other);
    if (strcmp(subject, other) == 0) cJSON_DeleteItemFromArray(list, i);
  }
  plm_json_append(list, cJSON_Duplicate(line, true));
  return true;
}

/* Reads RUN/evaluator.jsonl of a checkpoint RUN/checkpoints/step_N. A copy of a checkpoint
 * elsewhere has none, and neither has a model with another one's adapter. */
static plm_status gather_evaluations(struct plm_card_facts *facts, struct plm_error *error)
{
  char path[PLM_PATH_SIZE];
  facts->evaluations = cJSON_CreateArray();
  facts->tasks = cJSON_CreateArray();
  if (!facts->folder->checkpoint || facts->adapter != NULL) return PLM_OK;
  PLM_TRY(plm_path_join(path, facts->folder->directory, "../../" PLM_RUN_EVALUATOR_METRICS, error));
  PLM_TRY(plm_metrics_each(path, card_facts_on_line, facts, error));
  if (cJSON_GetArraySize(facts->evaluations) == 0)
    plm_info("the model card has no metrics: the evaluator has not reported the %s weights of step "
             "%llu",
             facts->weights, (unsigned long long)facts->folder->step);
  return PLM_OK;
}

/* ---- gathering ----------------------------------------------------------------------------- */

plm_status plm_card_facts_gather(struct plm_card_facts *facts, struct plm_error *error)
{
  plm_status status = gather_training(facts, error);
  if (status == PLM_OK) gather_corpus(facts);
  if (status == PLM_OK) status = gather_evaluations(facts, error);
  if (status != PLM_OK) plm_card_facts_deinit(facts);
  return status;
}

void plm_card_facts_deinit(struct plm_card_facts *facts)
{
  if (facts->trained) plm_config_deinit(&facts->config);
  if (facts->corpus_known) plm_corpus_description_deinit(&facts->corpus);
  cJSON_Delete(facts->evaluations);
  cJSON_Delete(facts->tasks);
  facts->trained = facts->corpus_known = false;
  facts->evaluations = facts->tasks = NULL;
}
