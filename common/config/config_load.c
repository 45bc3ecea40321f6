/* Loads a configuration: defaults, then the file, then PLM_* variables, then flags. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/suggest.h"
#include "common/config/config.h"
#include "common/config/config_text.h"
#include "common/config/key_suggestion.h"
#include "common/config/problems.h"
#include "common/config/service_variables.h"
#include "common/config/settings.h"
#include "common/config/yaml_limits.h"

extern char **environ;

/* ---- inputs -------------------------------------------------------------------------------- */

static void read_defaults(struct plm_loader *loader, const char *base)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    struct plm_config_text input = {
        .loader = loader, .name = table[i].key, .base = base, .origin = PLM_ORIGIN_DEFAULT};
    plm_config_text_override(&input, table[i].key, table[i].fallback);
    loader->places[i] = (struct plm_place){0};
  }
  PLM_ASSERT(loader->problems->count == 0); /* each default fits its own row */
}

/* A folder of a model or of a run in the place of a configuration. */
static void refuse_folder(struct plm_loader *loader, const char *path)
{
  char own[PLM_PATH_SIZE];
  const bool run =
      plm_path_join(own, path, "pipeline.yaml", NULL) == PLM_OK && plm_file_exists(own);
  if (run)
    plm_problems_add(loader->problems, (struct plm_place){0},
                     "%.400s is a folder, not a configuration; its configuration is %.400s", path,
                     own);
  else
    plm_problems_add(loader->problems, (struct plm_place){0},
                     "%.400s is a folder, not a configuration; for a model, `plm-pipeline "
                     "checkpoints %.400s` says what it is",
                     path, path);
}

static void config_load_read_file(struct plm_loader *loader, const char *path, const char *base)
{
  struct plm_error error = {0};
  struct plm_config_file file = {0};
  struct stat found;
  char *text = NULL;
  size_t size = 0;
  while (strncmp(path, "./", 2) == 0) path += 2;
  plm_config_file_add(loader, path, &file);
  if (plm_directory_exists(path)) {
    refuse_folder(loader, path);
    return;
  }
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
  plm_config_text_read_file(loader, &file, text, size);
}

/* Clears places that refer to the name of a variable or flag, which is about to go out of scope.
 * Later checks then name only the key. */
static void forget_input(struct plm_loader *loader, const char *name)
{
  size_t count;
  plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (loader->places[i].input == name) loader->places[i].input = NULL;
  }
  for (size_t i = 0; i < PLM_MAX_SOURCES; i++) {
    if (loader->source_places[i].input == name) loader->source_places[i].input = NULL;
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
  struct plm_config_text input = {
      .loader = loader, .name = name, .base = base, .origin = PLM_ORIGIN_ENVIRONMENT};
  struct plm_suggestion near = {.word = name};
  unsigned slot = 0;
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (!plm_setting_variable(table[i].key, candidates[slot])) continue;
    if (strcmp(candidates[slot], name) == 0) {
      plm_config_text_override(&input, table[i].key, entry + length + 1);
      forget_input(loader, name);
      return;
    }
    plm_suggest(&near, candidates[slot]);
    if (near.best == candidates[slot]) slot ^= 1;
  }
  if (!names_a_section(name) || plm_is_service_variable(name, entry + length + 1)) return;
  if (near.best != NULL) {
    plm_problems_add(loader->problems, (struct plm_place){.input = name},
                     "unknown variable; did you mean \"%s\"?", near.best);
  } else {
    plm_problems_add(loader->problems, (struct plm_place){.input = name}, "unknown variable");
  }
}

static void read_flag(struct plm_loader *loader, const struct plm_config_override *override,
                      const char *base)
{
  char name[PLM_KEY_SIZE];
  const bool run = strcmp(override->key, "run") == 0;
  snprintf(name, sizeof name, "%s%.200s", run ? "--" : "--set ", override->key);
  struct plm_config_text input = {
      .loader = loader, .name = name, .base = base, .origin = PLM_ORIGIN_FLAG};
  if (plm_setting_find(override->key) == NULL && !plm_setting_is_section(override->key)) {
    char prefix[PLM_KEY_SIZE];
    snprintf(prefix, sizeof prefix, "%.200s", override->key);
    char *dot = strrchr(prefix, '.');
    if (dot != NULL)
      dot[1] = '\0';
    else
      prefix[0] = '\0';
    plm_key_unknown(loader->problems, (struct plm_place){.input = name}, prefix,
                    override->key + strlen(prefix));
    return;
  }
  plm_config_text_override(&input, override->key, override->value);
  forget_input(loader, name);
}

/* ---- loading ------------------------------------------------------------------------------- */

static plm_status config_load_folder_of(const char *path, char folder[PLM_PATH_SIZE],
                                        char **absolute, struct plm_error *error)
{
  char here[PLM_PATH_SIZE], full[PLM_PATH_SIZE];
  if (getcwd(here, sizeof here) == NULL) return plm_error_errno(error, "working directory");
  snprintf(folder, PLM_PATH_SIZE, "%s", here);
  if (path == NULL) return PLM_OK;
  while (strncmp(path, "./", 2) == 0) path += 2;
  PLM_TRY(plm_path_join(full, here, path, error));
  *absolute = plm_strdup(full);
  char *slash = strrchr(full, '/');
  if (slash == full) slash++;
  *slash = '\0';
  snprintf(folder, PLM_PATH_SIZE, "%s", full);
  return PLM_OK;
}

static plm_status load_start(struct plm_loader *loader, struct plm_config *config, const char *path,
                             char base[PLM_PATH_SIZE], struct plm_error *error)
{
  size_t count;
  plm_settings(&count);
  *config = (struct plm_config){0};
  PLM_TRY(config_load_folder_of(path, base, &config->path, error));
  *loader = (struct plm_loader){.config = config,
                                .problems = plm_problems_new(),
                                .places = plm_alloc_zeroed(count, sizeof *loader->places),
                                .bad = plm_alloc_zeroed(count, sizeof *loader->bad)};
  config->origins = plm_alloc_zeroed(count, sizeof *config->origins);
  read_defaults(loader, base);
  return PLM_OK;
}

static plm_status load_finish(struct plm_loader *loader, struct plm_config_problems **problems,
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
  PLM_TRY(load_start(&loader, config, path, base, error));
  loader.more = more;
  if (path != NULL) config_load_read_file(&loader, path, base);
  for (char **entry = environ; *entry != NULL; entry++) {
    if (strncmp(*entry, "PLM_", 4) == 0) read_variable(&loader, *entry, here);
  }
  for (size_t i = 0; i < override_count; i++) read_flag(&loader, &overrides[i], here);
  return load_finish(&loader, problems, error);
}

plm_status plm_config_load_text(const char *yaml, size_t size, struct plm_config *config,
                                struct plm_error *error)
{
  char base[PLM_PATH_SIZE];
  struct plm_loader loader;
  PLM_TRY(load_start(&loader, config, NULL, base, error));
  struct plm_config_text input = {.loader = &loader,
                                  .name = "configuration",
                                  .has_lines = true,
                                  .base = base,
                                  .origin = PLM_ORIGIN_FILE};
  plm_config_text_read(&input, yaml, size, "");
  return load_finish(&loader, NULL, error);
}
