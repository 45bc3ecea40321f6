/* The sizes of the ESM-2 models (Lin et al. 2023), and where they take effect. */
#include "common/config/presets.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"

const char *const plm_preset_names[] = {"none", "8M", "35M", "150M", "650M", NULL};
enum { NAMED = sizeof plm_preset_names / sizeof *plm_preset_names - 2 };

/* The values of each preset, in the order of the names after "none". */
static const struct {
  const char *key;
  const char *values[NAMED];
} sizes[] = {
    {"model.architecture", {"transformer", "transformer", "transformer", "transformer"}},
    {"model.hidden_size", {"320", "480", "640", "1280"}},
    {"model.num_attention_heads", {"20", "20", "20", "20"}},
    {"model.num_hidden_layers", {"6", "12", "30", "33"}},
    {"model.expansion_ratio", {"4", "4", "4", "4"}},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

const char *plm_preset_value(const struct plm_config *config, const struct plm_setting *setting)
{
  if (config->model_preset == 0) return NULL;
  for (size_t i = 0; i < SIZES; i++)
    if (strcmp(sizes[i].key, setting->key) == 0) return sizes[i].values[config->model_preset - 1];
  return NULL;
}

static void presets_store(struct plm_loader *loader, const struct plm_setting *setting)
{
  const struct plm_scalar scalar = {.text = plm_preset_value(loader->config, setting)};
  const struct plm_value value = {.items = &scalar, .count = 1};
  const size_t row = plm_setting_index(setting);
  size_t culprit;
  char message[512];
  const bool stored = plm_setting_store(setting, &value, "/", loader->config, &culprit, message);
  PLM_ASSERT(stored); /* each value fits its own row */
  loader->config->origins[row].kind = PLM_ORIGIN_PRESET;
  loader->places[row] = loader->places[plm_setting_index(plm_setting_find("model.preset"))];
}

/* The levels of a patch_unet widen, and num_hidden_layers is not its depth. */
static bool presets_usable(struct plm_loader *loader, const struct plm_setting *preset)
{
  const struct plm_config *config = loader->config;
  const struct plm_setting *architecture = plm_setting_find("model.architecture");
  if (loader->bad[plm_setting_index(preset)]) return false;
  if (loader->bad[plm_setting_index(architecture)] ||
      config->origins[plm_setting_index(architecture)].kind == PLM_ORIGIN_DEFAULT ||
      config->model.architecture != PLM_PATCH_UNET)
    return true;
  plm_problems_add(loader->problems, loader->places[plm_setting_index(preset)],
                   "model.preset: %s has layers of one width, but the levels of a patch_unet "
                   "widen, so it would have another size; use model.architecture: transformer or "
                   "unet, or model.preset: none with the sizes that you want",
                   plm_preset_names[config->model_preset]);
  return false;
}

void plm_presets_settle(struct plm_loader *loader)
{
  const struct plm_setting *preset = plm_setting_find("model.preset");
  const bool bad = loader->bad[plm_setting_index(preset)];
  if (!bad && loader->config->model_preset == 0) return;
  const bool used = presets_usable(loader, preset);
  for (size_t i = 0; i < SIZES; i++) {
    const struct plm_setting *setting = plm_setting_find(sizes[i].key);
    const size_t row = plm_setting_index(setting);
    if (loader->config->origins[row].kind != PLM_ORIGIN_DEFAULT || loader->bad[row]) continue;
    if (used)
      presets_store(loader, setting);
    else
      loader->bad[row] = true;
  }
}

void plm_presets_advise(const struct plm_config *config, struct plm_text *text)
{
  for (size_t i = 0; i < SIZES; i++) {
    const struct plm_setting *setting = plm_setting_find(sizes[i].key);
    const char *usual = plm_preset_value(config, setting);
    char *value = plm_setting_print(setting, config);
    if (usual != NULL && value != NULL && strcmp(value, usual) != 0)
      plm_text_printf(text, "%s: %s is given and overrides the %s of model.preset %s\n",
                      setting->key, value, usual, plm_preset_names[config->model_preset]);
    if (value == NULL) text->failed = true;
    free(value);
  }
}
