/* Printing a resolved configuration as YAML, and releasing it. */
#include <stdlib.h>
#include <string.h>

#include "common/base/text/text.h"
#include "common/config/config.h"
#include "common/config/settings.h"

/* Prints the heads of the sections that begin with `key`; `before` is the key printed last. Returns
 * the depth of `key`. */
static int open_sections(struct plm_text *text, const char *before, const char *key)
{
  int depth = 0;
  const char *part = key;
  bool same = true;
  for (const char *dot; (dot = strchr(part, '.')) != NULL; part = dot + 1, depth++) {
    const size_t length = (size_t)(dot - key) + 1;
    same = same && strncmp(before, key, length) == 0;
    if (same) continue;
    plm_text_printf(text, "%s%*s%.*s:\n", depth == 0 ? "\n" : "", 2 * depth, "", (int)(dot - part),
                    part);
  }
  return depth;
}

/* Whether a key describes the training of a run, other than its corpora. */
static bool is_training(const char *key)
{
  static const char *const sections[] = {"seed", "data.", "model.", "trainer."};
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    if (strncmp(key, sections[i], strlen(sections[i])) == 0) return true;
  return false;
}

/* trained: whose values the keys that describe training have; corpora: whose corpora. */
static char *config_print(const struct plm_config *config, const struct plm_config *trained,
                          const struct plm_config *corpora)
{
  struct plm_text text = {0};
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    const int depth = open_sections(&text, i > 0 ? table[i - 1].key : "", table[i].key);
    const char *dot = strrchr(table[i].key, '.');
    const bool corpus = strcmp(table[i].key, "corpus") == 0;
    char *value = plm_setting_print(&table[i], corpus                      ? corpora
                                               : is_training(table[i].key) ? trained
                                                                           : config);
    plm_text_printf(&text, "%*s%s: %s\n", 2 * depth, "", dot ? dot + 1 : table[i].key, value);
    free(value);
  }
  return text.data;
}

char *plm_config_print(const struct plm_config *config)
{
  return config_print(config, config, config);
}

plm_status plm_config_print_kept(const struct plm_config *before, const struct plm_config *now,
                                 char **yaml, struct plm_error *error)
{
  struct plm_text changes = {0};
  const plm_status status = plm_config_check_sources(before, now, &changes, error);
  if (status == PLM_OK) *yaml = config_print(now, before, changes.length > 0 ? before : now);
  plm_text_deinit(&changes);
  return status;
}

void plm_config_deinit(struct plm_config *config)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++) plm_setting_release(&table[i], config);
  for (uint32_t i = 0; i < config->file_count; i++) free(config->files[i]);
  free(config->files);
  free(config->path);
  free(config->origins);
  *config = (struct plm_config){0};
}
