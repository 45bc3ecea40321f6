/* Several corpora: reading the list form of `corpus`, and what several entries must agree on. */
#include "common/config/config_sources.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/suggest.h"
#include "common/config/config_corpora.h"

#define AT(member) (ptrdiff_t) offsetof(struct plm_config_source, member)

enum { MESSAGE_SIZE = 512 };

/* The keys of an entry. Their offsets are into struct plm_config_source. */
static const struct plm_setting keys[] = {
    {.key = "path", .type = PLM_SETTING_PATH, .offset = AT(path), .unit = ""},
    {.key = "weight",
     .type = PLM_SETTING_DOUBLE,
     .offset = AT(weight),
     .unit = "",
     .min = 0,
     .max = 1e9,
     .flags = PLM_SETTING_ABOVE_MIN},
    {.key = "final_weight",
     .type = PLM_SETTING_DOUBLE,
     .offset = AT(final_weight),
     .unit = "",
     .min = 0,
     .max = 1e9,
     .flags = PLM_SETTING_NULLABLE},
    {.key = "sampling",
     .type = PLM_SETTING_CHOICE,
     .offset = AT(sampling),
     .unit = "",
     .choices = plm_sampling_names,
     .flags = PLM_SETTING_NULLABLE},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* ---- reading ------------------------------------------------------------------------------- */

static struct plm_place place_of(const struct plm_sources_text *text, const yaml_node_t *node)
{
  struct plm_place place = text->place;
  if (text->has_lines) {
    place.line = (uint32_t)node->start_mark.line + 1;
    place.column = (uint32_t)node->start_mark.column + 1;
  }
  return place;
}

static bool is_null(const struct plm_scalar *scalar)
{
  return !scalar->quoted && (scalar->text[0] == '\0' || strcmp(scalar->text, "~") == 0 ||
                             strcmp(scalar->text, "null") == 0);
}

static bool unknown_key(struct plm_loader *loader, struct plm_place place, const char *word)
{
  struct plm_suggestion near = {.word = word};
  for (size_t i = 0; i < KEYS; i++) plm_suggest(&near, keys[i].key);
  plm_problems_add(loader->problems, place,
                   "corpus: unknown key \"%.80s\" of a source; expected path, weight, "
                   "final_weight or sampling%s%s%s",
                   word, near.best != NULL ? "; did you mean \"" : "",
                   near.best != NULL ? near.best : "", near.best != NULL ? "\"?" : "");
  return false;
}

static bool read_value(struct plm_loader *loader, const struct plm_sources_text *text,
                       const struct plm_setting *key, const yaml_node_t *node,
                       struct plm_config_source *entry)
{
  char message[MESSAGE_SIZE], expected[256];
  size_t culprit;
  const struct plm_place place = place_of(text, node);
  plm_setting_describe(key, expected);
  if (node->type != YAML_SCALAR_NODE) {
    plm_problems_add(loader->problems, place, "corpus: %s: expected %s, found a list or section",
                     key->key, expected);
    return false;
  }
  const struct plm_scalar scalar = {.text = (const char *)node->data.scalar.value,
                                    .quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE};
  const struct plm_value value = {.items = &scalar, .count = 1};
  if ((key->flags & PLM_SETTING_NULLABLE) != 0 && is_null(&scalar)) return true; /* the default */
  if (plm_setting_store(key, &value, text->base, (struct plm_config *)(void *)entry, &culprit,
                        message))
    return true;
  if (strcmp(message, PLM_SETTING_NO_MEMORY) == 0)
    loader->problems->no_memory = true;
  else
    plm_problems_add(loader->problems, place, "corpus: %s: %s", key->key, message);
  return false;
}

static bool read_entry(struct plm_loader *loader, const struct plm_sources_text *text,
                       const yaml_node_t *node, struct plm_config_source *entry)
{
  bool good = true, seen[KEYS] = {false};
  *entry = (struct plm_config_source){.weight = 1, .final_weight = -1, .sampling = -1};
  if (node->type != YAML_MAPPING_NODE) {
    plm_problems_add(loader->problems, place_of(text, node),
                     "corpus: expected {path: DIR, weight: NUMBER} in the list");
    return false;
  }
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
       pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(text->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(text->document, pair->value);
    const char *word =
        name->type == YAML_SCALAR_NODE ? (const char *)name->data.scalar.value : "(a list)";
    size_t k = 0;
    while (k < KEYS && strcmp(keys[k].key, word) != 0) k++;
    if (k == KEYS) {
      good = unknown_key(loader, place_of(text, name), word);
    } else if (seen[k]) {
      plm_problems_add(loader->problems, place_of(text, name),
                       "corpus: duplicate key \"%s\" of a source", word);
      good = false;
    } else {
      seen[k] = true;
      if (!read_value(loader, text, &keys[k], value, entry)) good = false;
    }
  }
  if (entry->path == NULL && !seen[0]) {
    plm_problems_add(loader->problems, place_of(text, node), "corpus: a source has no path");
    good = false;
  }
  return good;
}

bool plm_sources_read(struct plm_loader *loader, const struct plm_sources_text *text)
{
  struct plm_config *config = loader->config;
  const yaml_node_item_t *first = text->list->data.sequence.items.start;
  const size_t count = (size_t)(text->list->data.sequence.items.top - first);
  bool good = true;
  plm_sources_release(config);
  free(config->corpus);
  config->corpus = NULL;
  if (count == 0 || count > PLM_MAX_SOURCES) {
    plm_problems_add(loader->problems, text->place,
                     "corpus: expected 1 to %d sources in the list, found %zu", PLM_MAX_SOURCES,
                     count);
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    struct plm_config_source *entry = &config->sources[config->source_count];
    const yaml_node_t *node = yaml_document_get_node(text->document, first[i]);
    if (!read_entry(loader, text, node, entry)) good = false;
    if (entry->path != NULL) loader->source_places[config->source_count++] = place_of(text, node);
  }
  const char *path = config->sources[0].path;
  if (config->source_count == 0 || path == NULL) return false;
  config->corpus = strdup(path);
  if (config->corpus == NULL) loader->problems->no_memory = true;
  return good;
}

/* ---- checks -------------------------------------------------------------------------------- */

static void check_twice(struct plm_loader *loader, uint32_t i)
{
  const struct plm_config_source *sources = loader->config->sources;
  for (uint32_t j = 0; j < i; j++) {
    if (strcmp(sources[i].path, sources[j].path) != 0) continue;
    plm_problems_add(loader->problems, loader->source_places[i],
                     "corpus: source %u is the same corpus as source %u, %s", i, j,
                     sources[j].path);
    return;
  }
}

void plm_sources_check(struct plm_loader *loader)
{
  const struct plm_config *config = loader->config;
  const size_t row = plm_setting_index(plm_setting_find("data.mixture_steps"));
  const size_t corpus = plm_setting_index(plm_setting_find("corpus"));
  double sum = 0;
  for (uint32_t i = 0; i < config->source_count; i++) {
    const struct plm_config_source *source = &config->sources[i];
    check_twice(loader, i);
    sum += source->final_weight < 0 ? source->weight : source->final_weight;
    if (source->final_weight >= 0 && config->data.mixture_steps == 0 && !loader->bad[row])
      plm_problems_add(loader->problems, loader->source_places[i],
                       "corpus: source %u has a final_weight, but data.mixture_steps is 0; set it "
                       "to the steps in which the weights move",
                       i);
  }
  if (config->source_count > 0 && sum <= 0 && !loader->bad[corpus])
    plm_problems_add(loader->problems, loader->source_places[0],
                     "corpus: every final_weight is 0, so nothing would be left to train on");
}
