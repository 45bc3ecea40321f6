/* The sizes of the ESM-2 models (Lin et al. 2023) and of ESM-C (ESM Team 2024), and where they take
 * effect. */
#include "common/config/presets.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/model/architecture.h"

const char *const plm_preset_names[] = {"none", "8M",   "35M",  "150M", "650M", "3B",
                                        "15B",  "300M", "600M", "6B",   NULL};
enum { NAMED = sizeof plm_preset_names / sizeof *plm_preset_names - 2 };

/* The architecture of the published model that each preset is a size of. */
static const enum plm_architecture preset_of[NAMED] = {
    PLM_ESM2, PLM_ESM2, PLM_ESM2, PLM_ESM2, PLM_ESM2, PLM_ESM2, PLM_ESMC, PLM_ESMC, PLM_ESMC};

/* Architectures that a key of a preset is for. */
enum scope { FOR_ALL, FOR_OURS, FOR_PUBLISHED };

/* The values of each preset, in the order of the names after "none". */
static const struct {
  const char *key;
  enum scope scope;
  const char *values[NAMED];
} sizes[] = {
    {"model.architecture",
     FOR_ALL,
     {"transformer", "transformer", "transformer", "transformer", "transformer", "transformer",
      "esmc", "esmc", "esmc"}},
    {"model.hidden_size",
     FOR_ALL,
     {"320", "480", "640", "1280", "2560", "5120", "960", "1152", "2560"}},
    {"model.num_attention_heads", FOR_ALL, {"20", "20", "20", "20", "40", "40", "15", "18", "40"}},
    {"model.num_hidden_layers", FOR_ALL, {"6", "12", "30", "33", "36", "48", "30", "36", "80"}},
    {"model.expansion_ratio", FOR_OURS, {"4", "4", "4", "4", "4", "4", NULL, NULL, NULL}},
    {"model.intermediate_size",
     FOR_PUBLISHED,
     {"1280", "1920", "2560", "5120", "10240", "20480", "2560", "3072", "6912"}},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

const char *plm_preset_value(const struct plm_config *config, const struct plm_setting *setting)
{
  const bool published = plm_architecture_rules(config->model.architecture)->published;
  if (config->model_preset == 0) return NULL;
  for (size_t i = 0; i < SIZES; i++)
    if (strcmp(sizes[i].key, setting->key) == 0 &&
        (sizes[i].scope == FOR_ALL || (sizes[i].scope == FOR_PUBLISHED) == published))
      return sizes[i].values[config->model_preset - 1];
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

/* Appends what is wrong with an architecture that was given for the preset, with the advice. A
 * preset that chooses one of our own architectures gives its sizes to architectures without presets
 * of their own. But the levels of one that merges positions widen, and num_hidden_layers is not its
 * depth. */
static void presets_fault(int preset, enum plm_architecture architecture, struct plm_text *fault)
{
  static const char none[] = "model.preset: none with the sizes that you want";
  const enum plm_architecture of = preset_of[preset - 1];
  const char *name = plm_architecture_name(architecture), *only = plm_architecture_name(of);
  const char *title = plm_architecture_rules(of)->title, *chosen = sizes[0].values[preset - 1];
  const char *others[NAMED + 1] = {NULL};
  size_t count = 0;
  for (size_t i = 0; i < NAMED; i++)
    if (preset_of[i] == architecture) others[count++] = plm_preset_names[i + 1];
  if (architecture == of) return;
  if (strcmp(chosen, only) == 0) {
    plm_text_printf(fault, "is a size of %s; use model.architecture: %s, or %s", title, only, none);
  } else if (count > 0) {
    plm_text_printf(fault, "is a size of %s; use ", title);
    plm_text_put_list(fault, others, " or ");
    plm_text_printf(fault, " for %s", name);
  } else if (plm_architecture_rules(architecture)->merges) {
    plm_text_printf(fault,
                    "has layers of one width, but the levels of a %s widen, so it would have "
                    "another size; use model.architecture: transformer or unet, or %s",
                    name, none);
  }
}

static bool presets_usable(struct plm_loader *loader, const struct plm_setting *preset)
{
  const struct plm_config *config = loader->config;
  const struct plm_setting *architecture = plm_setting_find("model.architecture");
  if (loader->bad[plm_setting_index(preset)]) return false;
  if (loader->bad[plm_setting_index(architecture)] ||
      config->origins[plm_setting_index(architecture)].kind == PLM_ORIGIN_DEFAULT)
    return true;
  struct plm_text fault = {0};
  presets_fault(config->model_preset, config->model.architecture, &fault);
  if (fault.length == 0) return true;
  plm_problems_add(loader->problems, loader->places[plm_setting_index(preset)],
                   "model.preset: %s %s", plm_preset_names[config->model_preset], fault.data);
  plm_text_deinit(&fault);
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
    if (!used)
      loader->bad[row] = true;
    else if (plm_preset_value(loader->config, setting) != NULL)
      presets_store(loader, setting);
  }
}

void plm_presets_advise(const struct plm_config *config, struct plm_text *text)
{
  for (size_t i = 0; i < SIZES; i++) {
    const struct plm_setting *setting = plm_setting_find(sizes[i].key);
    const char *usual = plm_preset_value(config, setting);
    char *value = plm_setting_print(setting, config);
    if (usual != NULL && strcmp(value, usual) != 0)
      plm_text_printf(text, "%s: %s is given and overrides the %s of model.preset %s\n",
                      setting->key, value, usual, plm_preset_names[config->model_preset]);
    free(value);
  }
}
