/* Reads texts of YAML into a configuration. Each value goes through the settings table, and every
 * problem is collected with its place. */
#include "common/config/config_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "common/base/alloc.h"
#include "common/config/config_include.h"
#include "common/config/config_sources.h"
#include "common/config/key_suggestion.h"
#include "common/config/setting_sets.h"
#include "common/config/setting_tasks.h"
#include "common/config/yaml_limits.h"

enum { MESSAGE_SIZE = 512, LIST_MAX = PLM_MAX_HOSTS /* of any list */ };
_Static_assert((int)LIST_MAX >= (int)PLM_MAX_PATTERN, "a pattern fits");

static struct plm_place config_text_place_of(const struct plm_config_text *input, yaml_mark_t mark)
{
  struct plm_place place = {.input = input->name};
  if (input->has_lines) {
    place.line = (uint32_t)mark.line + 1;
    place.column = (uint32_t)mark.column + 1;
  }
  if (input->file != NULL) place.file = input->file->number;
  return place;
}

/* ---- one value ----------------------------------------------------------------------------- */

static void set_origin(const struct plm_config_text *input, const struct plm_setting *setting,
                       struct plm_place place)
{
  const size_t index = plm_setting_index(setting);
  input->loader->places[index] = place;
  input->loader->config->origins[index] = (struct plm_config_origin){
      .kind = input->origin, .line = place.line, .column = place.column, .file = place.file};
}

static void config_text_store(const struct plm_config_text *input,
                              const struct plm_setting *setting, const struct plm_value *value,
                              struct plm_place place)
{
  struct plm_loader *loader = input->loader;
  const size_t index = plm_setting_index(setting);
  char message[MESSAGE_SIZE];
  size_t culprit;
  set_origin(input, setting, place);
  loader->bad[index] = false;
  if (plm_setting_store(setting, value, input->base, loader->config, &culprit, message)) return;
  loader->bad[index] = true;
  if (value->is_list && culprit < value->count && input->has_lines) {
    place.line = value->items[culprit].line;
    place.column = value->items[culprit].column;
  }
  plm_problems_add(loader->problems, place, "%s: %s", setting->key, message);
}

static void store_node(const struct plm_config_text *input, const struct plm_setting *setting,
                       yaml_node_t *node)
{
  const struct plm_place place = config_text_place_of(input, node->start_mark);
  struct plm_scalar scalars[LIST_MAX + 1];
  struct plm_value value = {.items = scalars};
  char expected[256];
  plm_setting_describe(setting, expected);
  if (node->type == YAML_SCALAR_NODE) {
    scalars[0] = plm_yaml_scalar(node);
    value.count = 1;
    config_text_store(input, setting, &value, place);
    return;
  }
  plm_records_reader *reader = setting->type == PLM_SETTING_CORPUS  ? plm_sources_read
                               : setting->type == PLM_SETTING_SETS  ? plm_config_sets_read
                               : setting->type == PLM_SETTING_TASKS ? plm_config_tasks_read
                                                                    : NULL;
  if (node->type == YAML_SEQUENCE_NODE && reader != NULL) {
    const struct plm_yaml_list list = {input->document, node, place, input->base, input->has_lines};
    set_origin(input, setting, place);
    input->loader->bad[plm_setting_index(setting)] = !reader(input->loader, &list);
    return;
  }
  if (node->type != YAML_SEQUENCE_NODE) {
    input->loader->bad[plm_setting_index(setting)] = true;
    plm_problems_add(input->loader->problems, place, "%s: expected %s, found a section",
                     setting->key, expected);
    return;
  }
  value.is_list = true;
  for (const yaml_node_item_t *item = node->data.sequence.items.start;
       item < node->data.sequence.items.top && value.count <= LIST_MAX; item++) {
    const yaml_node_t *entry = yaml_document_get_node(input->document, *item);
    if (entry->type != YAML_SCALAR_NODE) {
      input->loader->bad[plm_setting_index(setting)] = true;
      plm_problems_add(input->loader->problems, config_text_place_of(input, entry->start_mark),
                       "%s: expected %s, found a list or section in the list", setting->key,
                       expected);
      return;
    }
    scalars[value.count++] = plm_yaml_scalar(entry);
  }
  config_text_store(input, setting, &value, place);
}

/* ---- sections ------------------------------------------------------------------------------ */

static void config_text_walk(const struct plm_config_text *input, const char *prefix,
                             yaml_node_t *mapping);

static void walk_section(const struct plm_config_text *input, const char *key, yaml_node_t *node)
{
  char prefix[PLM_KEY_SIZE];
  snprintf(prefix, sizeof prefix, "%s.", key);
  if (node->type == YAML_MAPPING_NODE) {
    config_text_walk(input, prefix, node);
    return;
  }
  /* A section whose keys are all commented out is null. */
  if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
      node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
    return;
  plm_problems_add(input->loader->problems, config_text_place_of(input, node->start_mark),
                   "%s: expected a section (keys with values), found %s", key,
                   node->type == YAML_SCALAR_NODE ? "a value" : "a list");
}

/* The key of an earlier pair that has the same name, or NULL. */
static const yaml_node_t *earlier(const struct plm_config_text *input, const yaml_node_t *mapping,
                                  const yaml_node_pair_t *until, const char *word)
{
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < until; pair++) {
    const yaml_node_t *key = yaml_document_get_node(input->document, pair->key);
    if (key->type == YAML_SCALAR_NODE && strcmp((char *)key->data.scalar.value, word) == 0) {
      return key;
    }
  }
  return NULL;
}

static void config_text_walk(const struct plm_config_text *input, const char *prefix,
                             yaml_node_t *mapping)
{
  struct plm_config_problems *problems = input->loader->problems;
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
       pair < mapping->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(input->document, pair->key);
    yaml_node_t *value = yaml_document_get_node(input->document, pair->value);
    const struct plm_place place = config_text_place_of(input, key->start_mark);
    if (key->type != YAML_SCALAR_NODE) {
      plm_problems_add(problems, place, "a key must be a word");
      continue;
    }
    const char *word = (const char *)key->data.scalar.value;
    char full[PLM_KEY_SIZE];
    snprintf(full, sizeof full, "%s%s", prefix, word);
    const yaml_node_t *first = earlier(input, mapping, pair, word);
    const struct plm_setting *setting = plm_setting_find(full);
    /* "a.b" as one word is not a key, although plm_setting_find would find it. */
    const bool dotted = strchr(word, '.') != NULL;
    if (first != NULL) {
      plm_problems_add(problems, place, "duplicate key \"%.80s\"; first on line %zu", word,
                       first->start_mark.line + 1);
    } else if (input->file != NULL && strcmp(full, PLM_INCLUDE_KEY) == 0) {
      continue; /* read_includes has read it */
    } else if (setting != NULL && !dotted) {
      store_node(input, setting, value);
    } else if (!dotted && plm_setting_is_section(full)) {
      walk_section(input, full, value);
    } else {
      plm_key_unknown(problems, place, prefix, word);
    }
  }
}

/* ---- texts --------------------------------------------------------------------------------- */

static yaml_mark_t mark_of_offset(const char *text, size_t size, size_t offset)
{
  yaml_mark_t mark = {0};
  for (size_t i = 0; i < offset && i < size; i++) {
    mark.column = text[i] == '\n' ? 0 : mark.column + 1;
    mark.line += text[i] == '\n';
  }
  return mark;
}

static void syntax_problem(const struct plm_config_text *input, const yaml_parser_t *parser,
                           const char *text, size_t size)
{
  yaml_mark_t mark = parser->problem_mark;
  if (parser->problem == NULL) { /* libyaml does not always set YAML_MEMORY_ERROR */
    input->loader->problems->no_memory = true;
    return;
  }
  if (parser->error == YAML_READER_ERROR) mark = mark_of_offset(text, size, parser->problem_offset);
  plm_problems_add(input->loader->problems, config_text_place_of(input, mark), "not valid YAML: %s",
                   parser->problem);
}

/* A text that is too long is refused before it is parsed. */
static bool within_limits(const struct plm_config_text *input, const char *text, size_t size)
{
  struct plm_yaml_excess excess;
  if (size > PLM_YAML_MAX_BYTES) {
    plm_problems_add(input->loader->problems, (struct plm_place){.input = input->name},
                     "%zu bytes exceed the limit of %d", size, PLM_YAML_MAX_BYTES);
    return false;
  }
  if (!plm_yaml_exceeds(text, size, &excess)) return true;
  const yaml_mark_t mark = {.line = excess.line, .column = excess.column};
  plm_problems_add(input->loader->problems, config_text_place_of(input, mark), "%s", excess.what);
  return false;
}

/* ---- included files ------------------------------------------------------------------------ */

void plm_config_text_read_file(struct plm_loader *loader, const struct plm_config_file *file,
                               char *text, size_t size)
{
  struct plm_config_text input = {.loader = loader,
                                  .name = file->name,
                                  .has_lines = true,
                                  .base = file->folder,
                                  .file = file,
                                  .origin = PLM_ORIGIN_FILE};
  plm_config_text_read(&input, text, size, "");
  free(text);
}

static void read_include(const struct plm_config_text *input, const yaml_node_t *node)
{
  struct plm_config_file file;
  const struct plm_place place = config_text_place_of(input, node->start_mark);
  const char *path = (const char *)node->data.scalar.value;
  char *text;
  size_t size;
  if (node->type != YAML_SCALAR_NODE) {
    plm_problems_add(input->loader->problems, place,
                     PLM_INCLUDE_KEY ": expected the path of a file, found a list or section");
    return;
  }
  if (plm_include_read(input->loader, input->file, place, path, &file, &text, &size))
    plm_config_text_read_file(input->loader, &file, text, size);
}

/* The values of included files come first, in the order of the list, so that those of a later file
 * and of the including file override them. */
static void read_includes(const struct plm_config_text *input, const yaml_node_t *root)
{
  const yaml_node_t *node = plm_include_node(input->document, root);
  if (node == NULL) return;
  if (node->type != YAML_SEQUENCE_NODE) {
    read_include(input, node);
    return;
  }
  for (const yaml_node_item_t *item = node->data.sequence.items.start;
       item < node->data.sequence.items.top; item++)
    read_include(input, yaml_document_get_node(input->document, *item));
}

void plm_config_text_read(struct plm_config_text *input, const char *text, size_t size,
                          const char *key)
{
  yaml_parser_t parser;
  yaml_document_t document, second;
  if (!within_limits(input, text, size)) return;
  if (!yaml_parser_initialize(&parser)) {
    input->loader->problems->no_memory = true;
    return;
  }
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  if (!yaml_parser_load(&parser, &document)) {
    syntax_problem(input, &parser, text, size);
    yaml_parser_delete(&parser);
    return;
  }
  input->document = &document;
  yaml_node_t *root = yaml_document_get_root_node(&document);
  const struct plm_setting *setting = key[0] != '\0' ? plm_setting_find(key) : NULL;
  const struct plm_scalar nothing = {.text = ""};
  const struct plm_value null_value = {.items = &nothing, .count = 1};
  if (root == NULL && setting != NULL) {
    config_text_store(input, setting, &null_value, (struct plm_place){.input = input->name});
  } else if (root != NULL && setting != NULL) {
    store_node(input, setting, root);
  } else if (root != NULL && key[0] != '\0') {
    walk_section(input, key, root);
  } else if (root != NULL && root->type == YAML_MAPPING_NODE) {
    if (input->file != NULL) read_includes(input, root);
    config_text_walk(input, "", root);
  } else if (root != NULL && !(root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0)) {
    plm_problems_add(input->loader->problems, config_text_place_of(input, root->start_mark),
                     "expected keys with values, found %s",
                     root->type == YAML_SCALAR_NODE ? "a single value" : "a list");
  }
  if (root != NULL) {
    if (!yaml_parser_load(&parser, &second)) {
      syntax_problem(input, &parser, text, size);
    } else {
      const yaml_node_t *more = yaml_document_get_root_node(&second);
      if (more != NULL) {
        plm_problems_add(input->loader->problems, config_text_place_of(input, more->start_mark),
                         "a second YAML document begins here; only one is expected");
      }
      yaml_document_delete(&second);
    }
  }
  input->document = NULL;
  yaml_document_delete(&document);
  yaml_parser_delete(&parser);
}

void plm_config_text_override(struct plm_config_text *input, const char *key, const char *text)
{
  const struct plm_setting *setting = plm_setting_find(key);
  const bool literal =
      setting != NULL &&
      (setting->type == PLM_SETTING_STRING || setting->type == PLM_SETTING_PATH ||
       setting->type == PLM_SETTING_ENDPOINT || setting->type == PLM_SETTING_ADDRESS ||
       (setting->type == PLM_SETTING_CORPUS && text[0] != '['));
  if (literal) {
    const struct plm_scalar scalar = {.text = text};
    const struct plm_value value = {.items = &scalar, .count = 1};
    config_text_store(input, setting, &value, (struct plm_place){.input = input->name});
    return;
  }
  const bool list = setting != NULL && setting->count_max > 0 && text[0] != '[';
  char *bracketed = plm_format(list ? "[%s]" : "%s", text);
  plm_config_text_read(input, bracketed, strlen(bracketed), key);
  free(bracketed);
}
