/* What is allowed and probably not meant: settings without effect, and their like. */
#include "common/base/text/text.h"
#include "common/config/config_corpora.h"
#include "common/config/config_labels.h"
#include "common/config/loader_keys.h"
#include "common/config/presets.h"
#include "common/config/settings.h"
#include "common/model/architecture.h"

/* masked_diffusion draws its mask rates itself. Only its first mlm_warmup_steps train as mlm. */
static void advise_mask_rate(const struct plm_config *config, struct plm_text *text)
{
  static const char *const keys[] = {"trainer.masking.mask_rate",
                                     "trainer.masking.starting_mask_rate",
                                     "trainer.masking.mask_rate_steps"};
  if (config->trainer.objective != PLM_OBJECTIVE_MASKED_DIFFUSION ||
      config->trainer.masking.mlm_warmup_steps > 0)
    return;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (config->origins[plm_key_row(keys[i])].kind == PLM_ORIGIN_DEFAULT) continue;
    plm_text_printf(text,
                    "%s: has no effect, since masked_diffusion draws its own mask rates and "
                    "trainer.masking.mlm_warmup_steps is 0\n",
                    keys[i]);
  }
}

static void advise_checkpoints(const struct plm_config *config, struct plm_text *text)
{
  const struct plm_config_stop_when *when = &config->trainer.stop_when;
  if (config->trainer.checkpoint.best_by != NULL && config->trainer.checkpoint.keep_best == 0)
    plm_text_puts(text, "trainer.checkpoint.best_by: keeps no checkpoint, since "
                        "trainer.checkpoint.keep_best is 0\n");
  if (when->metric != PLM_STOP_LOSS && when->patience == 0)
    plm_text_puts(text, "trainer.stop_when.metric: has no effect, since trainer.stop_when.patience "
                        "is 0\n");
  if (when->patience > 0 && config->trainer.checkpoint.every == 0)
    plm_text_puts(text, "trainer.stop_when.patience: has no effect, since trainer.checkpoint.every "
                        "is 0, so that no checkpoint is published during training\n");
}

/* Adapters are trained by AdamW, whose rates are far below Muon's. */
static void advise_adapters(const struct plm_config *config, struct plm_text *text)
{
  if (config->model.lora.rank == 0) return;
  if (config->origins[plm_key_row("trainer.optimizer.lr_hidden")].kind == PLM_ORIGIN_DEFAULT)
    plm_text_printf(text,
                    "trainer.optimizer.lr_hidden: the default of %g is for Muon; adapters of "
                    "trainer.lora usually need 1e-4 to 1e-3\n",
                    config->trainer.optimizer.lr_hidden);
  if (config->trainer.init_from == NULL)
    plm_text_puts(text, "trainer.lora: trains adapters of random weights, since trainer.init_from "
                        "is not set\n");
}

void plm_config_advise_dropout(const struct plm_config *config, struct plm_text *text)
{
  const struct plm_model_config *model = &config->model;
  const struct plm_config_origin *origin = &config->origins[plm_key_row("model.token_dropout")];
  if (!plm_architecture_rules(model->architecture)->scales_dropout || model->token_dropout ||
      origin->kind != PLM_ORIGIN_FILE || config->trainer.init_from != NULL)
    return;
  plm_text_printf(text,
                  "model.token_dropout: false, so this %s trains without the token dropout of the "
                  "published models; leave the key out for it. --set model.token_dropout=false "
                  "says that it is meant\n",
                  plm_architecture_name(model->architecture));
}

void plm_config_advise(const struct plm_config *config, struct plm_text *text)
{
  const struct plm_model_config *model = &config->model;
  plm_presets_advise(config, text);
  advise_mask_rate(config, text);
  plm_config_advise_labels(config, text);
  advise_checkpoints(config, text);
  advise_adapters(config, text);
  plm_config_advise_dropout(config, text);
  for (uint32_t i = 0; i < model->pattern_count; i++) {
    if ((model->pattern[i] & PLM_ATTENTION_BLOCK) == 0) continue;
    plm_text_puts(text, "model.attention.pattern: `block` masks count from the beginning of the "
                        "chunk, so a document's result depends on its position in the chunk\n");
    break;
  }
  struct plm_config settled = *config;
  settled.data.document_alignment = 0;
  const uint32_t needed = plm_config_alignment(&settled);
  if (plm_config_alignment(config) < needed) {
    plm_text_printf(text,
                    "data.document_alignment: %u is less than the %u tokens that %s merges, so "
                    "neighbouring documents mix\n",
                    config->data.document_alignment, needed,
                    plm_architecture_names[model->architecture]);
  }
  if (config->data.mixture_steps > 0 && !plm_sources_move(config))
    plm_text_puts(text, "data.mixture_steps: has no effect, since no corpus has a final_weight\n");
  if (config->corpus == NULL) {
    plm_text_puts(text,
                  "corpus: null, so the run takes the corpus of the first packer that joins\n");
  }
}
