/* Several corpora: the list form of `corpus`, what the rest of the program sees of it, and what a
 * resume may change. */
#include "common/config/config_sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/suggest.h"
#include "common/base/text.h"

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

void plm_sources_release(struct plm_config *config)
{
  for (uint32_t i = 0; i < config->source_count; i++) free(config->sources[i].path);
  memset(config->sources, 0, sizeof config->sources);
  config->source_count = 0;
}

/* ---- checks -------------------------------------------------------------------------------- */

bool plm_sources_move(const struct plm_config *config)
{
  for (uint32_t i = 0; i < config->source_count; i++)
    if (config->sources[i].final_weight >= 0) return true;
  return false;
}

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

/* ---- printing ------------------------------------------------------------------------------ */

static void print_entry(const struct plm_config_source *source, bool path, struct plm_text *text)
{
  plm_text_puts(text, "{");
  if (path) {
    plm_text_puts(text, "path: ");
    plm_setting_put_string(text, source->path);
    plm_text_puts(text, ", ");
  }
  plm_text_puts(text, "weight: ");
  plm_setting_print_number(text, source->weight);
  plm_text_puts(text, ", final_weight: ");
  if (source->final_weight < 0)
    plm_text_puts(text, "null");
  else
    plm_setting_print_number(text, source->final_weight);
  if (path)
    plm_text_printf(text, ", sampling: %s",
                    source->sampling < 0 ? "null" : plm_sampling_names[source->sampling]);
  plm_text_puts(text, "}");
}

/* In a flow list, a plain path must not contain what ends it; those that do are quoted already. */
void plm_sources_print(const struct plm_config *config, struct plm_text *text)
{
  plm_text_puts(text, "[");
  for (uint32_t i = 0; i < config->source_count; i++) {
    if (i > 0) plm_text_puts(text, ", ");
    print_entry(&config->sources[i], true, text);
  }
  plm_text_puts(text, "]");
}

/* ---- what others see ----------------------------------------------------------------------- */

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

/* ---- resuming ------------------------------------------------------------------------------ */

static bool same_weights(const struct plm_config_source *a, const struct plm_config_source *b)
{
  return a->weight == b->weight && a->final_weight == b->final_weight;
}

static void note_change(const struct plm_config *before, const struct plm_config *now, uint32_t k,
                        struct plm_text *changes)
{
  const struct plm_config_source source = plm_config_source(now, k);
  plm_text_printf(changes, "corpus: source %u: ", k);
  if (k < plm_config_source_count(before)) {
    const struct plm_config_source old = plm_config_source(before, k);
    print_entry(&old, false, changes);
    plm_text_puts(changes, " -> ");
  } else {
    plm_text_printf(changes, "added %s ", source.path);
  }
  print_entry(&source, false, changes);
  plm_text_puts(changes, "\n");
}

plm_status plm_config_check_sources(const struct plm_config *before, const struct plm_config *now,
                                    struct plm_text *changes, struct plm_error *error)
{
  const uint32_t old = plm_config_source_count(before), count = plm_config_source_count(now);
  if (count < old) {
    plm_error_set(error, PLM_CONFIG,
                  "corpus: the run was trained on %u corpora, but the list has %u", old, count);
    return plm_error_hint(error, "sources cannot be removed from a run; give those that are no "
                                 "longer wanted a small weight");
  }
  for (uint32_t k = 0; k < count; k++) {
    const struct plm_config_source a = plm_config_source(before, k < old ? k : 0);
    const struct plm_config_source b = plm_config_source(now, k);
    if (k < old &&
        plm_config_source_plan(before, k).sampling != plm_config_source_plan(now, k).sampling &&
        before->data.sampling == now->data.sampling) {
      plm_error_set(error, PLM_CONFIG,
                    "corpus: the sampling of source %u changed, which makes it another run", k);
      return plm_error_hint(error, "restore the old value, or start a new run (another `run:`) "
                                   "from the old weights with trainer.init_from: CHECKPOINT");
    }
    if (changes != NULL && (k >= old || !same_weights(&a, &b)))
      note_change(before, now, k, changes);
  }
  return PLM_OK;
}
