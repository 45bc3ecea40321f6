/* Writes and reads `lora` of config.json. */
#include "common/huggingface/lora_json.h"

#include <math.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/huggingface/head_json.h"
#include "common/model/architecture.h"

void plm_lora_config_print(const struct plm_model_config *model, struct cJSON *json)
{
  const struct plm_lora_config *lora = &model->lora;
  if (lora->rank == 0) return;
  cJSON *own = cJSON_AddObjectToObject(plm_own_keys(model, json), "lora");
  cJSON_AddNumberToObject(own, "rank", lora->rank);
  cJSON_AddNumberToObject(own, "alpha", lora->alpha);
  cJSON *targets = cJSON_AddArrayToObject(own, "targets");
  for (int t = 0; t < PLM_LORA_TARGETS; t++)
    if ((lora->targets >> t & 1) != 0)
      plm_json_append(targets, cJSON_CreateString(plm_lora_target_names[t]));
  cJSON_AddNumberToObject(own, "dropout", lora->dropout);
}

static plm_status lora_wrong(const char *key, const char *expected, struct plm_error *error)
{
  plm_error_set(error, PLM_FORMAT, "\"%s\" is not %s", key, expected);
  plm_error_where(error, "%s", key);
  return PLM_FORMAT;
}

static plm_status read_target(const cJSON *item, uint32_t *targets, struct plm_error *error)
{
  const int found = plm_text_find(plm_lora_target_names, cJSON_GetStringValue(item));
  if (found < 0) return lora_wrong("lora.targets", "a list of q, k, v, o, gate, up or down", error);
  *targets |= 1U << found;
  return PLM_OK;
}

plm_status plm_lora_config_parse(const struct cJSON *json, struct plm_model_config *model,
                                 struct plm_error *error)
{
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  const cJSON *own =
      rules->published ? cJSON_GetObjectItemCaseSensitive(json, "plm_pipeline") : json;
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(own, "lora");
  struct plm_lora_config lora = {0};
  model->lora = lora;
  if (item == NULL || cJSON_IsNull(item)) return PLM_OK;
  const double rank = plm_json_number(item, "rank", (double)NAN);
  if (!(rank >= 1) || rank > PLM_LORA_MAX_RANK || floor(rank) != rank)
    return lora_wrong("lora.rank", "a whole number from 1 to 1024", error);
  lora.rank = (uint32_t)rank;
  lora.alpha = plm_json_number(item, "alpha", (double)NAN);
  lora.dropout = plm_json_number(item, "dropout", 0);
  const cJSON *target, *targets = cJSON_GetObjectItemCaseSensitive(item, "targets");
  cJSON_ArrayForEach(target, targets) PLM_TRY(read_target(target, &lora.targets, error));
  PLM_TRY(plm_lora_config_check(&lora, rules->block.mlp == PLM_MLP_SWIGLU, error));
  model->lora = lora;
  return PLM_OK;
}
