/* The value of evaluator.sets: checked, stored and printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/text.h"
#include "common/config/settings.h"
#include "common/metrics/metrics.h"

enum { MESSAGE_SIZE = 512 };

bool plm_config_is_set_name(const char *name)
{
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t length = strlen(name);
  return length > 0 && length < PLM_SET_NAME_SIZE && name[strspn(name, allowed)] == '\0';
}

static bool store_name(const char *text, char name[PLM_SET_NAME_SIZE], char message[MESSAGE_SIZE])
{
  if (!plm_config_is_set_name(text)) {
    snprintf(message, MESSAGE_SIZE,
             "a name has 1 to %d letters, digits, dots, hyphens and underscores, found \"%.80s\"",
             PLM_SET_NAME_SIZE - 1, text);
    return false;
  }
  if (strcmp(text, PLM_OWN_SET) == 0) {
    snprintf(message, MESSAGE_SIZE,
             "the name \"%s\" stands for the run's own corpus; choose another name", text);
    return false;
  }
  snprintf(name, PLM_SET_NAME_SIZE, "%s", text);
  return true;
}

static bool store_item(const struct plm_scalar *item, const char *base, struct plm_config_set *set,
                       char message[MESSAGE_SIZE])
{
  if (strcmp(item->key, "name") == 0) return store_name(item->text, set->name, message);
  if (strcmp(item->key, "split") == 0) {
    if (plm_split_parse(item->text, &set->split, NULL) == PLM_OK) return true;
    snprintf(message, MESSAGE_SIZE, "expected train, valid or test as split, found \"%.80s\"",
             item->text);
    return false;
  }
  if (strcmp(item->key, "corpus") != 0) {
    snprintf(message, MESSAGE_SIZE, "unknown key \"%.80s\"; a set has name, corpus and split",
             item->key);
    return false;
  }
  if (item->text[0] == '\0') {
    snprintf(message, MESSAGE_SIZE, "the path of the corpus is empty");
    return false;
  }
  set->corpus = plm_setting_absolute_path(base, item->text);
  if (set->corpus == NULL) {
    snprintf(message, MESSAGE_SIZE, PLM_SETTING_NO_MEMORY);
    return false;
  }
  if (strlen(set->corpus) < PLM_PATH_SIZE) return true;
  snprintf(message, MESSAGE_SIZE, "a path must not be longer than %d bytes", PLM_PATH_SIZE - 1);
  return false;
}

/* Whether each set is complete and no name is there twice. *record is the one at fault. */
static bool complete(const struct plm_config_set *sets, uint32_t count, uint32_t *record,
                     char message[MESSAGE_SIZE])
{
  for (uint32_t i = 0; i < count; i++) {
    *record = i;
    if (sets[i].name[0] == '\0' || sets[i].corpus == NULL) {
      snprintf(message, MESSAGE_SIZE, "entry %u has no %s", i + 1,
               sets[i].name[0] == '\0' ? "name" : "corpus");
      return false;
    }
    for (uint32_t j = 0; j < i; j++) {
      if (strcmp(sets[i].name, sets[j].name) != 0) continue;
      snprintf(message, MESSAGE_SIZE, "\"%.32s\" is listed twice", sets[i].name);
      return false;
    }
  }
  return true;
}

static void release(struct plm_config_set *sets, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    free(sets[i].corpus);
    sets[i] = (struct plm_config_set){0};
  }
}

bool plm_config_sets_store(const struct plm_setting *setting, const struct plm_value *value,
                           const char *base, struct plm_config *config, size_t *culprit,
                           char message[512])
{
  struct plm_config_set sets[PLM_MAX_SETS] = {0};
  const uint32_t count = value->count > 0 ? value->items[value->count - 1].record + 1 : 0;
  uint32_t record = 0;
  bool stored = true;
  for (uint32_t i = 0; i < PLM_MAX_SETS; i++) sets[i].split = PLM_SPLIT_VALID;
  if (count > setting->count_max) {
    snprintf(message, MESSAGE_SIZE, "expected %u to %u entries, found %u", setting->count_min,
             setting->count_max, count);
    return false;
  }
  for (size_t i = 0; i < value->count && stored; i++) {
    *culprit = i;
    stored = store_item(&value->items[i], base, &sets[value->items[i].record], message);
  }
  if (stored && !complete(sets, count, &record, message)) {
    stored = false;
    for (size_t i = value->count; i-- > 0;)
      if (value->items[i].record == record) *culprit = i;
  }
  if (!stored) {
    release(sets, count);
    return false;
  }
  release(config->evaluator.sets, PLM_MAX_SETS);
  memcpy(config->evaluator.sets, sets, sizeof sets);
  config->evaluator.set_count = count;
  return true;
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

void plm_config_sets_release(struct plm_config_evaluator *evaluator)
{
  release(evaluator->sets, PLM_MAX_SETS);
  evaluator->set_count = 0;
}
