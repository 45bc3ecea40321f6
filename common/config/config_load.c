/* Loads a configuration: defaults, then the file, then PLM_* variables, then flags. Each value goes
 * through the settings table, and every problem is collected with its place. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yaml.h>

#include "common/base/file.h"
#include "common/base/suggest.h"
#include "common/config/config.h"
#include "common/config/config_include.h"
#include "common/config/config_sources.h"
#include "common/config/key_suggestion.h"
#include "common/config/problems.h"
#include "common/config/service_variables.h"
#include "common/config/setting_sets.h"
#include "common/config/settings.h"
#include "common/config/yaml_limits.h"

extern char **environ;

enum { KEY_SIZE = PLM_KEY_SIZE, MESSAGE_SIZE = 512, LIST_MAX = PLM_MAX_HOSTS /* of any list */ };
_Static_assert((int)LIST_MAX >= (int)PLM_MAX_PATTERN, "a pattern fits");

/* The text being read: the file, a variable or a flag. */
struct source {
  struct plm_loader *loader;
  const char *name;                   /* as problems name it */
  bool has_lines;                     /* it is a file, so places have line and column */
  const char *base;                   /* folder that relative paths are relative to */
  const struct plm_config_file *file; /* NULL: not a file, so it cannot include any */
  enum plm_origin_kind origin;
  yaml_document_t *document;
};

static struct plm_place place_of(const struct source *source, yaml_mark_t mark)
{
  struct plm_place place = {.source = source->name};
  if (source->has_lines) {
    place.line = (uint32_t)mark.line + 1;
    place.column = (uint32_t)mark.column + 1;
  }
  if (source->file != NULL) place.file = source->file->number;
  return place;
}

/* ---- one value ----------------------------------------------------------------------------- */

static void set_origin(const struct source *source, const struct plm_setting *setting,
                       struct plm_place place)
{
  const size_t index = plm_setting_index(setting);
  source->loader->places[index] = place;
  source->loader->config->origins[index] = (struct plm_config_origin){
      .kind = source->origin, .line = place.line, .column = place.column, .file = place.file};
}

static void store(const struct source *source, const struct plm_setting *setting,
                  const struct plm_value *value, struct plm_place place)
{
  struct plm_loader *loader = source->loader;
  const size_t index = plm_setting_index(setting);
  char message[MESSAGE_SIZE];
  size_t culprit;
  set_origin(source, setting, place);
  loader->bad[index] = false;
  if (plm_setting_store(setting, value, source->base, loader->config, &culprit, message)) return;
  loader->bad[index] = true;
  if (value->is_list && culprit < value->count && source->has_lines) {
    place.line = value->items[culprit].line;
    place.column = value->items[culprit].column;
  }
  if (strcmp(message, PLM_SETTING_NO_MEMORY) == 0)
    loader->problems->no_memory = true;
  else
    plm_problems_add(loader->problems, place, "%s: %s", setting->key, message);
}

static void store_node(const struct source *source, const struct plm_setting *setting,
                       yaml_node_t *node)
{
  const struct plm_place place = place_of(source, node->start_mark);
  struct plm_scalar scalars[LIST_MAX + 1];
  struct plm_value value = {.items = scalars};
  char expected[256];
  plm_setting_describe(setting, expected);
  if (node->type == YAML_SCALAR_NODE) {
    scalars[0] = plm_yaml_scalar(node);
    value.count = 1;
    store(source, setting, &value, place);
    return;
  }
  const bool corpus = setting->type == PLM_SETTING_CORPUS;
  if (node->type == YAML_SEQUENCE_NODE && (corpus || setting->type == PLM_SETTING_SETS)) {
    const struct plm_yaml_list list = {source->document, node, place, source->base,
                                       source->has_lines};
    set_origin(source, setting, place);
    source->loader->bad[plm_setting_index(setting)] =
        !(corpus ? plm_sources_read : plm_config_sets_read)(source->loader, &list);
    return;
  }
  if (node->type != YAML_SEQUENCE_NODE) {
    source->loader->bad[plm_setting_index(setting)] = true;
    plm_problems_add(source->loader->problems, place, "%s: expected %s, found a section",
                     setting->key, expected);
    return;
  }
  value.is_list = true;
  for (const yaml_node_item_t *item = node->data.sequence.items.start;
       item < node->data.sequence.items.top && value.count <= LIST_MAX; item++) {
    const yaml_node_t *entry = yaml_document_get_node(source->document, *item);
    if (entry->type != YAML_SCALAR_NODE) {
      source->loader->bad[plm_setting_index(setting)] = true;
      plm_problems_add(source->loader->problems, place_of(source, entry->start_mark),
                       "%s: expected %s, found a list or section in the list", setting->key,
                       expected);
      return;
    }
    scalars[value.count++] = plm_yaml_scalar(entry);
  }
  store(source, setting, &value, place);
}

/* ---- sections ------------------------------------------------------------------------------ */

static void walk(const struct source *source, const char *prefix, yaml_node_t *mapping);

static void walk_section(const struct source *source, const char *key, yaml_node_t *node)
{
  char prefix[KEY_SIZE];
  snprintf(prefix, sizeof prefix, "%s.", key);
  if (node->type == YAML_MAPPING_NODE) {
    walk(source, prefix, node);
    return;
  }
  /* A section whose keys are all commented out is null. */
  if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
      node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
    return;
  plm_problems_add(source->loader->problems, place_of(source, node->start_mark),
                   "%s: expected a section (keys with values), found %s", key,
                   node->type == YAML_SCALAR_NODE ? "a value" : "a list");
}

/* The key of an earlier pair that has the same name, or NULL. */
static const yaml_node_t *earlier(const struct source *source, const yaml_node_t *mapping,
                                  const yaml_node_pair_t *until, const char *word)
{
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < until; pair++) {
    const yaml_node_t *key = yaml_document_get_node(source->document, pair->key);
    if (key->type == YAML_SCALAR_NODE && strcmp((char *)key->data.scalar.value, word) == 0) {
      return key;
    }
  }
  return NULL;
}

static void walk(const struct source *source, const char *prefix, yaml_node_t *mapping)
{
  struct plm_config_problems *problems = source->loader->problems;
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
       pair < mapping->data.mapping.pairs.top; pair++) {
    const yaml_node_t *key = yaml_document_get_node(source->document, pair->key);
    yaml_node_t *value = yaml_document_get_node(source->document, pair->value);
    const struct plm_place place = place_of(source, key->start_mark);
    if (key->type != YAML_SCALAR_NODE) {
      plm_problems_add(problems, place, "a key must be a word");
      continue;
    }
    const char *word = (const char *)key->data.scalar.value;
    char full[KEY_SIZE];
    snprintf(full, sizeof full, "%s%s", prefix, word);
    const yaml_node_t *first = earlier(source, mapping, pair, word);
    const struct plm_setting *setting = plm_setting_find(full);
    /* "a.b" as one word is not a key, although plm_setting_find would find it. */
    const bool dotted = strchr(word, '.') != NULL;
    if (first != NULL) {
      plm_problems_add(problems, place, "duplicate key \"%.80s\"; first on line %zu", word,
                       first->start_mark.line + 1);
    } else if (source->file != NULL && strcmp(full, PLM_INCLUDE_KEY) == 0) {
      continue; /* read_includes has read it */
    } else if (setting != NULL && !dotted) {
      store_node(source, setting, value);
    } else if (!dotted && plm_setting_is_section(full)) {
      walk_section(source, full, value);
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

static void syntax_problem(const struct source *source, const yaml_parser_t *parser,
                           const char *text, size_t size)
{
  yaml_mark_t mark = parser->problem_mark;
  if (parser->problem == NULL) { /* libyaml does not always set YAML_MEMORY_ERROR */
    source->loader->problems->no_memory = true;
    return;
  }
  if (parser->error == YAML_READER_ERROR) mark = mark_of_offset(text, size, parser->problem_offset);
  plm_problems_add(source->loader->problems, place_of(source, mark), "not valid YAML: %s",
                   parser->problem);
}

/* A text that is too long is refused before it is parsed. */
static bool within_limits(const struct source *source, const char *text, size_t size)
{
  struct plm_yaml_excess excess;
  if (size > PLM_YAML_MAX_BYTES) {
    plm_problems_add(source->loader->problems, (struct plm_place){.source = source->name},
                     "%zu bytes exceed the limit of %d", size, PLM_YAML_MAX_BYTES);
    return false;
  }
  if (!plm_yaml_exceeds(text, size, &excess)) return true;
  const yaml_mark_t mark = {.line = excess.line, .column = excess.column};
  plm_problems_add(source->loader->problems, place_of(source, mark), "%s", excess.what);
  return false;
}

/* ---- included files ------------------------------------------------------------------------ */

static void read_text(struct source *source, const char *text, size_t size, const char *key);

/* Reads the text of a whole file, and frees it. */
static void read_whole(struct plm_loader *loader, const struct plm_config_file *file, char *text,
                       size_t size)
{
  struct source source = {.loader = loader,
                          .name = file->name,
                          .has_lines = true,
                          .base = file->folder,
                          .file = file,
                          .origin = PLM_ORIGIN_FILE};
  read_text(&source, text, size, "");
  free(text);
}

static void read_include(const struct source *source, const yaml_node_t *node)
{
  struct plm_config_file file;
  const struct plm_place place = place_of(source, node->start_mark);
  const char *path = (const char *)node->data.scalar.value;
  char *text;
  size_t size;
  if (node->type != YAML_SCALAR_NODE) {
    plm_problems_add(source->loader->problems, place,
                     PLM_INCLUDE_KEY ": expected the path of a file, found a list or section");
    return;
  }
  if (plm_include_read(source->loader, source->file, place, path, &file, &text, &size))
    read_whole(source->loader, &file, text, size);
}

/* The values of included files come first, in the order of the list, so that those of a later file
 * and of the including file override them. */
static void read_includes(const struct source *source, const yaml_node_t *root)
{
  const yaml_node_t *node = plm_include_node(source->document, root);
  if (node == NULL) return;
  if (node->type != YAML_SEQUENCE_NODE) {
    read_include(source, node);
    return;
  }
  for (const yaml_node_item_t *item = node->data.sequence.items.start;
       item < node->data.sequence.items.top; item++)
    read_include(source, yaml_document_get_node(source->document, *item));
}

/* Parses text, the value of `key`. key is "" for a whole file. */
static void read_text(struct source *source, const char *text, size_t size, const char *key)
{
  yaml_parser_t parser;
  yaml_document_t document, second;
  if (!within_limits(source, text, size)) return;
  if (!yaml_parser_initialize(&parser)) {
    source->loader->problems->no_memory = true;
    return;
  }
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
  if (!yaml_parser_load(&parser, &document)) {
    syntax_problem(source, &parser, text, size);
    yaml_parser_delete(&parser);
    return;
  }
  source->document = &document;
  yaml_node_t *root = yaml_document_get_root_node(&document);
  const struct plm_setting *setting = key[0] != '\0' ? plm_setting_find(key) : NULL;
  const struct plm_scalar nothing = {.text = ""};
  const struct plm_value null_value = {.items = &nothing, .count = 1};
  if (root == NULL && setting != NULL) {
    store(source, setting, &null_value, (struct plm_place){.source = source->name});
  } else if (root != NULL && setting != NULL) {
    store_node(source, setting, root);
  } else if (root != NULL && key[0] != '\0') {
    walk_section(source, key, root);
  } else if (root != NULL && root->type == YAML_MAPPING_NODE) {
    if (source->file != NULL) read_includes(source, root);
    walk(source, "", root);
  } else if (root != NULL && !(root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0)) {
    plm_problems_add(source->loader->problems, place_of(source, root->start_mark),
                     "expected keys with values, found %s",
                     root->type == YAML_SCALAR_NODE ? "a single value" : "a list");
  }
  if (root != NULL) {
    if (!yaml_parser_load(&parser, &second)) {
      syntax_problem(source, &parser, text, size);
    } else {
      const yaml_node_t *more = yaml_document_get_root_node(&second);
      if (more != NULL) {
        plm_problems_add(source->loader->problems, place_of(source, more->start_mark),
                         "a second YAML document begins here; only one is expected");
      }
      yaml_document_delete(&second);
    }
  }
  source->document = NULL;
  yaml_document_delete(&document);
  yaml_parser_delete(&parser);
}

/* Reads the text of a variable or a flag. Strings and paths are taken literally, and a list may be
 * written without brackets. */
static void read_override(struct source *source, const char *key, const char *text)
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
    store(source, setting, &value, (struct plm_place){.source = source->name});
    return;
  }
  const bool list = setting != NULL && setting->count_max > 0 && text[0] != '[';
  char *bracketed = NULL;
  PLM_ASSERT(asprintf(&bracketed, list ? "[%s]" : "%s", text) >= 0);
  read_text(source, bracketed, strlen(bracketed), key);
  free(bracketed);
}

/* ---- sources ------------------------------------------------------------------------------- */

static void read_defaults(struct plm_loader *loader, const char *base)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    struct source source = {
        .loader = loader, .name = table[i].key, .base = base, .origin = PLM_ORIGIN_DEFAULT};
    read_override(&source, table[i].key, table[i].fallback);
    loader->places[i] = (struct plm_place){0};
  }
  PLM_ASSERT(loader->problems->count == 0); /* each default fits its own row */
}

static void read_file(struct plm_loader *loader, const char *path, const char *base)
{
  struct plm_error error = {0};
  struct plm_config_file file = {0};
  struct stat found;
  char *text = NULL;
  size_t size = 0;
  while (strncmp(path, "./", 2) == 0) path += 2;
  if (!plm_config_file_add(loader, path, &file)) return;
  if (plm_file_read(path, PLM_YAML_MAX_BYTES, &text, &size, &error) != PLM_OK) {
    /* plm_file_read's message already names the path */
    plm_problems_add_error(loader->problems, (struct plm_place){0}, "", &error);
    return;
  }
  if (stat(path, &found) == 0) {
    file.device = found.st_dev;
    file.inode = found.st_ino;
  }
  snprintf(file.folder, sizeof file.folder, "%s", base);
  read_whole(loader, &file, text, size);
}

/* Clears places that refer to the name of a variable or flag, which is about to go out of scope.
 * Later checks then name only the key. */
static void forget_source(struct plm_loader *loader, const char *name)
{
  size_t count;
  plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (loader->places[i].source == name) loader->places[i].source = NULL;
  }
  for (size_t i = 0; i < PLM_MAX_SOURCES; i++) {
    if (loader->source_places[i].source == name) loader->source_places[i].source = NULL;
  }
}

static bool names_a_section(const char *variable)
{
  static const char *const sections[] = {"PLM_NETWORK_", "PLM_DATA_",    "PLM_PACKER_",
                                         "PLM_MODEL_",   "PLM_TRAINER_", "PLM_EVALUATOR_",
                                         "PLM_METRICS_"};
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
    if (strncmp(variable, sections[i], strlen(sections[i])) == 0) return true;
  }
  return false;
}

static void read_variable(struct plm_loader *loader, const char *entry, const char *base)
{
  char name[96], candidates[2][96];
  const size_t length = strcspn(entry, "=");
  if (entry[length] != '=' || length >= sizeof name) return;
  snprintf(name, sizeof name, "%.*s", (int)length, entry);
  struct source source = {
      .loader = loader, .name = name, .base = base, .origin = PLM_ORIGIN_ENVIRONMENT};
  struct plm_suggestion near = {.word = name};
  unsigned slot = 0;
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (!plm_setting_variable(table[i].key, candidates[slot])) continue;
    if (strcmp(candidates[slot], name) == 0) {
      read_override(&source, table[i].key, entry + length + 1);
      forget_source(loader, name);
      return;
    }
    plm_suggest(&near, candidates[slot]);
    if (near.best == candidates[slot]) slot ^= 1;
  }
  if (!names_a_section(name) || plm_is_service_variable(name, entry + length + 1)) return;
  if (near.best != NULL) {
    plm_problems_add(loader->problems, (struct plm_place){.source = name},
                     "unknown variable; did you mean \"%s\"?", near.best);
  } else {
    plm_problems_add(loader->problems, (struct plm_place){.source = name}, "unknown variable");
  }
}

static void read_flag(struct plm_loader *loader, const struct plm_config_override *override,
                      const char *base)
{
  char name[KEY_SIZE];
  const bool run = strcmp(override->key, "run") == 0;
  snprintf(name, sizeof name, "%s%.200s", run ? "--" : "--set ", override->key);
  struct source source = {.loader = loader, .name = name, .base = base, .origin = PLM_ORIGIN_FLAG};
  if (plm_setting_find(override->key) == NULL && !plm_setting_is_section(override->key)) {
    char prefix[KEY_SIZE];
    snprintf(prefix, sizeof prefix, "%.200s", override->key);
    char *dot = strrchr(prefix, '.');
    if (dot != NULL)
      dot[1] = '\0';
    else
      prefix[0] = '\0';
    plm_key_unknown(loader->problems, (struct plm_place){.source = name}, prefix,
                    override->key + strlen(prefix));
    return;
  }
  read_override(&source, override->key, override->value);
  forget_source(loader, name);
}

/* ---- loading ------------------------------------------------------------------------------- */

static plm_status folder_of(const char *path, char folder[PLM_PATH_SIZE], char **absolute,
                            struct plm_error *error)
{
  char here[PLM_PATH_SIZE], full[PLM_PATH_SIZE];
  if (getcwd(here, sizeof here) == NULL) return plm_error_errno(error, "working directory");
  snprintf(folder, PLM_PATH_SIZE, "%s", here);
  *absolute = NULL;
  if (path == NULL) return PLM_OK;
  while (strncmp(path, "./", 2) == 0) path += 2;
  PLM_TRY(plm_path_join(full, here, path, error));
  *absolute = strdup(full);
  if (*absolute == NULL) return plm_error_set(error, PLM_NO_MEMORY, "out of memory");
  char *slash = strrchr(full, '/');
  if (slash == full) slash++;
  *slash = '\0';
  snprintf(folder, PLM_PATH_SIZE, "%s", full);
  return PLM_OK;
}

static plm_status begin(struct plm_loader *loader, struct plm_config *config, const char *path,
                        char base[PLM_PATH_SIZE], struct plm_error *error)
{
  size_t count;
  plm_settings(&count);
  *config = (struct plm_config){0};
  PLM_TRY(folder_of(path, base, &config->path, error));
  *loader = (struct plm_loader){.config = config,
                                .problems = plm_problems_new(),
                                .places = calloc(count, sizeof *loader->places),
                                .bad = calloc(count, sizeof *loader->bad)};
  config->origins = calloc(count, sizeof *config->origins);
  PLM_ASSERT(loader->problems != NULL && loader->places != NULL && loader->bad != NULL &&
             config->origins != NULL);
  read_defaults(loader, base);
  return PLM_OK;
}

static plm_status finish(struct plm_loader *loader, struct plm_config_problems **problems,
                         struct plm_error *error)
{
  if (plm_problems_lack(loader->problems, NULL) == PLM_OK) plm_config_check(loader);
  if (plm_problems_lack(loader->problems, NULL) == PLM_OK && loader->more != NULL)
    loader->more(loader);
  free(loader->places);
  free(loader->bad);
  const plm_status lack = plm_problems_lack(loader->problems, error);
  if (lack != PLM_OK) { /* the problems found so far may only follow from that */
    plm_config_problems_free(loader->problems);
    plm_config_deinit(loader->config);
    return lack;
  }
  if (loader->problems->count == 0) {
    plm_config_problems_free(loader->problems);
    return PLM_OK;
  }
  plm_problems_sort(loader->problems);
  plm_error_set(error, PLM_CONFIG, "%s", plm_config_problem(loader->problems, 0));
  if (problems != NULL)
    *problems = loader->problems;
  else
    plm_config_problems_free(loader->problems);
  plm_config_deinit(loader->config);
  return PLM_CONFIG;
}

plm_status plm_config_load(const char *path, const struct plm_config_override *overrides,
                           size_t override_count, struct plm_config *config,
                           struct plm_config_problems **problems, struct plm_error *error)
{
  return plm_config_load_with(path, overrides, override_count, NULL, config, problems, error);
}

plm_status plm_config_load_with(const char *path, const struct plm_config_override *overrides,
                                size_t override_count, void (*more)(struct plm_loader *loader),
                                struct plm_config *config, struct plm_config_problems **problems,
                                struct plm_error *error)
{
  char base[PLM_PATH_SIZE], here[PLM_PATH_SIZE];
  struct plm_loader loader;
  if (problems != NULL) *problems = NULL;
  if (getcwd(here, sizeof here) == NULL) return plm_error_errno(error, "working directory");
  PLM_TRY(begin(&loader, config, path, base, error));
  loader.more = more;
  if (path != NULL) read_file(&loader, path, base);
  for (char **entry = environ; *entry != NULL; entry++) {
    if (strncmp(*entry, "PLM_", 4) == 0) read_variable(&loader, *entry, here);
  }
  for (size_t i = 0; i < override_count; i++) read_flag(&loader, &overrides[i], here);
  return finish(&loader, problems, error);
}

plm_status plm_config_load_text(const char *yaml, size_t size, struct plm_config *config,
                                struct plm_error *error)
{
  char base[PLM_PATH_SIZE];
  struct plm_loader loader;
  PLM_TRY(begin(&loader, config, NULL, base, error));
  struct source source = {.loader = &loader,
                          .name = "configuration",
                          .has_lines = true,
                          .base = base,
                          .origin = PLM_ORIGIN_FILE};
  read_text(&source, yaml, size, "");
  return finish(&loader, NULL, error);
}
