/* The corpora that a run trains on, a single one or the entries of a list, and those of further
 * evaluation sets. */
#include "common/config/config_corpora.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/settings.h"

uint32_t plm_config_source_count(const struct plm_config *config)
{
  return config->source_count > 0 ? config->source_count : 1;
}

struct plm_config_source plm_config_source(const struct plm_config *config, uint32_t source)
{
  PLM_ASSERT(source < plm_config_source_count(config));
  if (config->source_count > 0) return config->sources[source];
  return (struct plm_config_source){config->corpus, 1, -1, -1};
}

/* The last part of a path; NULL without a path. */
static const char *folder_name(const struct plm_config *config, uint32_t source)
{
  const char *path = plm_config_source(config, source).path;
  const char *slash = path == NULL ? NULL : strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

void plm_config_source_name(const struct plm_config *config, uint32_t source,
                            char name[PLM_SOURCE_NAME_SIZE])
{
  const char *mine = folder_name(config, source);
  bool unique = true;
  if (mine == NULL || mine[0] == '\0') {
    snprintf(name, PLM_SOURCE_NAME_SIZE, "source %u", source);
    return;
  }
  for (uint32_t k = 0; k < plm_config_source_count(config); k++) {
    const char *other = folder_name(config, k);
    unique = unique && (k == source || other == NULL || strcmp(other, mine) != 0);
  }
  if (unique)
    snprintf(name, PLM_SOURCE_NAME_SIZE, "%.63s", mine);
  else
    snprintf(name, PLM_SOURCE_NAME_SIZE, "%.50s#%u", mine, source);
}

struct plm_mixture plm_config_mixture(const struct plm_config *config)
{
  struct plm_mixture mixture = {.count = plm_config_source_count(config),
                                .steps = config->data.mixture_steps};
  for (uint32_t k = 0; k < mixture.count; k++) {
    const struct plm_config_source source = plm_config_source(config, k);
    mixture.weights[k] = source.weight;
    mixture.final_weights[k] = source.final_weight;
  }
  return mixture;
}

bool plm_sources_move(const struct plm_config *config)
{
  for (uint32_t i = 0; i < config->source_count; i++)
    if (config->sources[i].final_weight >= 0) return true;
  return false;
}

void plm_sources_release(struct plm_config *config)
{
  for (uint32_t i = 0; i < config->source_count; i++) free(config->sources[i].path);
  config->source_count = 0;
}

void plm_config_sets_release(struct plm_config_evaluator *evaluator)
{
  for (uint32_t i = 0; i < evaluator->set_count; i++) {
    free(evaluator->sets[i].name);
    free(evaluator->sets[i].corpus);
  }
  evaluator->set_count = 0;
}

bool plm_config_is_set_name(const char *name)
{
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t length = strlen(name);
  return length > 0 && length <= PLM_SET_NAME_MOST && name[strspn(name, allowed)] == '\0';
}

/* ---- printing ------------------------------------------------------------------------------ */

void plm_source_print_weights(const struct plm_config_source *source, struct plm_text *text)
{
  plm_text_puts(text, "weight: ");
  plm_setting_print_number(text, source->weight);
  plm_text_puts(text, ", final_weight: ");
  if (source->final_weight < 0)
    plm_text_puts(text, "null");
  else
    plm_setting_print_number(text, source->final_weight);
}

/* In a flow list, a plain path must not contain what ends it; those that do are quoted already. */
void plm_sources_print(const struct plm_config *config, struct plm_text *text)
{
  plm_text_puts(text, "[");
  for (uint32_t i = 0; i < config->source_count; i++) {
    const struct plm_config_source *source = &config->sources[i];
    plm_text_puts(text, i > 0 ? ", {path: " : "{path: ");
    plm_setting_put_string(text, source->path);
    plm_text_puts(text, ", ");
    plm_source_print_weights(source, text);
    plm_text_printf(text, ", sampling: %s}",
                    source->sampling < 0 ? "null" : plm_sampling_names[source->sampling]);
  }
  plm_text_puts(text, "]");
}

void plm_config_sets_print(const struct plm_config_evaluator *evaluator, struct plm_text *text)
{
  plm_text_puts(text, "[");
  for (uint32_t i = 0; i < evaluator->set_count; i++) {
    const struct plm_config_set *set = &evaluator->sets[i];
    plm_text_printf(text, "%s{name: \"%s\", corpus: ", i > 0 ? ", " : "", set->name);
    plm_setting_put_string(text, set->corpus);
    plm_text_printf(text, ", split: %s}", plm_split_name(set->split));
  }
  plm_text_puts(text, "]");
}
