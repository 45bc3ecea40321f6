/* The settings of the model: what an architecture implies for them, and the rules they obey. */
#include "common/config/config_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/loader_keys.h"
#include "common/config/presets.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"

/* The place to report for a key of the model. If the key has its default, the mistake follows from
 * another key that was given. */
static struct plm_place place_of_model(const struct plm_loader *loader, const char *key)
{
  static const char *const causes[] = {"model.hidden_size", "model.num_attention_heads",
                                       "model.attention.pattern", "model.architecture",
                                       "model.num_unet_layers"};
  struct plm_place place = {0};
  if (plm_setting_find(key) != NULL) place = plm_key_place(loader, key, NULL);
  for (size_t i = 0; i < sizeof causes / sizeof causes[0] && place.input == NULL; i++) {
    const bool attention = strstr(causes[i], "attention.pattern") != NULL;
    if (attention == (strstr(key, "attention.") != NULL)) {
      place = plm_key_place(loader, causes[i], NULL);
    }
  }
  return place;
}

/* The setting behind a key of config.json. */
static void setting_of(const char *key, char setting[64])
{
  if (strcmp(key, "max_length") == 0)
    snprintf(setting, 64, "data.max_length");
  else
    snprintf(setting, 64, "model.%s", key);
}

static bool model_key_known(void *context, const char *key)
{
  char setting[64];
  setting_of(key, setting);
  return plm_setting_find(setting) == NULL ||
         !plm_key_is_bad(context, setting); /* a key without a setting */
}

/* What an architecture of published weights implies where nothing else is given. */
static void settle_published(struct plm_loader *loader)
{
  struct plm_model_config *model = &loader->config->model;
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  if (!plm_key_is_given(loader, "model.soft_logit_cap")) model->soft_logit_cap = 0;
  if (!plm_key_is_given(loader, "model.tie_embeddings"))
    model->tie_embeddings = rules->ties_embeddings;
  if (!plm_key_is_given(loader, "model.token_dropout")) model->token_dropout = rules->token_dropout;
  if (!plm_key_is_bad(loader, "model.intermediate_size") && model->intermediate_size == 0)
    model->intermediate_size = plm_architecture_intermediate(model);
  if (!plm_key_is_bad(loader, "model.layer_norm_eps") && model->layer_norm_eps == 0)
    model->layer_norm_eps = rules->layer_norm_eps;
  model->max_positions =
      model->max_length > rules->max_positions ? model->max_length : rules->max_positions;
}

/* The tokenizer and the size of the vocabulary. */
static void settle_vocabulary(struct plm_loader *loader)
{
  struct plm_model_config *model = &loader->config->model;
  const struct plm_architecture_rules *rules = plm_architecture_rules(model->architecture);
  const char *name = plm_architecture_name(model->architecture);
  const enum plm_tokenizer_kind kind = loader->config->data.tokenizer;
  const uint32_t tokens = plm_tokenizer_of(kind)->vocab_size;
  if (rules->published && kind != PLM_TOKENIZER_ESM && !plm_key_is_bad(loader, "data.tokenizer")) {
    plm_problems_add(loader->problems,
                     plm_key_place(loader, "data.tokenizer", "model.architecture"),
                     "data.tokenizer: %s has the tokens of the tokenizer esm", name);
    loader->bad[plm_key_row("data.tokenizer")] = true;
  }
  if (plm_key_is_bad(loader, "model.vocab_size")) return;
  if (model->vocab_size == 0)
    model->vocab_size = rules->vocab_size != 0 ? rules->vocab_size : tokens;
  if (rules->published || model->vocab_size == tokens || plm_key_is_bad(loader, "data.tokenizer") ||
      plm_key_is_bad(loader, "model.architecture"))
    return;
  plm_problems_add(loader->problems, plm_key_place(loader, "model.vocab_size", NULL),
                   "model.vocab_size: %s has as many as the tokenizer %s, %u; use auto", name,
                   plm_tokenizer_names[kind], tokens);
  loader->bad[plm_key_row("model.vocab_size")] = true;
}

/* expansion_ratio of an architecture that has intermediate_size. Its default is no mistake, so that
 * a printed configuration can be read again. */
static void check_expansion(struct plm_loader *loader)
{
  static const char key[] = "model.expansion_ratio";
  const struct plm_model_config *model = &loader->config->model;
  char *value = plm_setting_print(plm_setting_find(key), loader->config);
  if (plm_key_is_given(loader, key) &&
      strtod(value, NULL) != strtod(plm_setting_find(key)->fallback, NULL))
    plm_problems_add(loader->problems, plm_key_place(loader, key, NULL),
                     "%s: does not apply to %s; use model.intermediate_size", key,
                     plm_architecture_name(model->architecture));
  free(value);
}

void plm_config_check_model(struct plm_loader *loader)
{
  struct plm_model_config *model = &loader->config->model;
  struct plm_model_fault faults[PLM_MODEL_MAX_FAULTS];
  model->max_length = loader->config->data.max_length;
  if (plm_architecture_rules(model->architecture)->published) {
    settle_published(loader);
    check_expansion(loader);
  }
  settle_vocabulary(loader);
  const size_t count = plm_model_config_faults(model, model_key_known, loader, faults);
  for (size_t i = 0; i < count; i++) {
    char setting[64];
    setting_of(faults[i].key, setting);
    const bool preset = loader->config->origins[plm_key_row(setting)].kind == PLM_ORIGIN_PRESET;
    plm_problems_add(loader->problems, place_of_model(loader, setting), "%s: %s%s%s%s", setting,
                     faults[i].what, preset ? "; the value is that of model.preset " : "",
                     preset ? plm_preset_names[loader->config->model_preset] : "",
                     preset ? ", unless you set another" : "");
  }
}
