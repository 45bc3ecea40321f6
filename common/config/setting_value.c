/* Checks the text of a value against its row and stores it in struct plm_config. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/files/file.h"
#include "common/base/text/suggest.h"
#include "common/base/text/text.h"
#include "common/config/config_corpora.h"
#include "common/config/setting_tasks.h"
#include "common/config/settings.h"
#include "common/config/step_range.h"

enum { MESSAGE_SIZE = 512, IPC_PATH_LIMIT = 107 };

static void *setting_value_field(const struct plm_setting *setting, struct plm_config *config)
{
  return (char *)config + setting->offset;
}

bool plm_scalar_is_null(const struct plm_scalar *scalar)
{
  return !scalar->quoted && (scalar->text[0] == '\0' || strcmp(scalar->text, "~") == 0 ||
                             strcmp(scalar->text, "null") == 0);
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool in_range(const struct plm_setting *setting, double value, const char *text,
                     char message[MESSAGE_SIZE])
{
  const bool above = (setting->flags & PLM_SETTING_ABOVE_MIN) != 0;
  const bool below = (setting->flags & PLM_SETTING_BELOW_MAX) != 0;
  if ((above ? value > setting->min : value >= setting->min) &&
      (below ? value < setting->max : value <= setting->max))
    return true;
  char low[40], high[40];
  plm_setting_limit(setting, false, low);
  plm_setting_limit(setting, true, high);
  snprintf(message, MESSAGE_SIZE, "%.60s is out of range: must be %s %s and %s %s%s%s", text,
           above ? "above" : "at least", low, below ? "below" : "at most", high,
           setting->unit[0] != '\0' ? " " : "", setting->unit);
  return false;
}

/* Only digits: no sign, and no leading zero, which YAML 1.1 would read as octal. False: nothing is
 * set. */
static bool parse_whole(const char *text, uint64_t *value, bool *too_large)
{
  const size_t digits = strspn(text, "0123456789");
  if (digits == 0 || text[digits] != '\0' || (digits > 1 && text[0] == '0')) return false;
  errno = 0;
  *value = strtoull(text, NULL, 10);
  *too_large = errno == ERANGE;
  return true;
}

static bool parse_number(const char *text, double *value)
{
  if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') return false;
  char *end;
  *value = strtod(text, &end);
  return end != text && *end == '\0' && isfinite(*value);
}

static bool wrong_type(const struct plm_setting *setting, const struct plm_value *value,
                       char message[MESSAGE_SIZE])
{
  char expected[256];
  const struct plm_scalar *found = value->items;
  plm_setting_describe(setting, expected);
  if (value->is_list)
    snprintf(message, MESSAGE_SIZE, "expected %s, found a list", expected);
  else if (plm_scalar_is_null(found))
    snprintf(message, MESSAGE_SIZE, "expected %s, found null", expected);
  else if (plm_setting_is_list(setting) && setting->choices != NULL &&
           plm_text_find(setting->choices, found->text) >= 0)
    snprintf(message, MESSAGE_SIZE, "expected %s; write [%s]", expected, found->text);
  else
    snprintf(message, MESSAGE_SIZE, "expected %s, found %s\"%.80s\"", expected,
             found->quoted ? "the string " : "", found->text);
  return false;
}

static bool read_whole(const struct plm_setting *setting, const struct plm_value *value,
                       uint64_t *number, char message[MESSAGE_SIZE])
{
  const struct plm_scalar *scalar = &value->items[0];
  double ignored;
  bool too_large;
  if (scalar->quoted) return wrong_type(setting, value, message);
  if (!parse_whole(scalar->text, number, &too_large)) {
    if (scalar->text[0] == '-' && parse_number(scalar->text, &ignored)) {
      return in_range(setting, -1e300, scalar->text, message);
    }
    return wrong_type(setting, value, message);
  }
  if (!in_range(setting, too_large ? 1e300 : (double)*number, scalar->text, message)) return false;
  if ((setting->flags & PLM_SETTING_POWER_OF_TWO) != 0 && (*number & (*number - 1)) != 0) {
    return wrong_type(setting, value, message);
  }
  return true;
}

/* "25%": a share of trainer.steps. The check of the whole configuration turns it into steps. */
static bool read_share(const struct plm_setting *setting, const struct plm_scalar *scalar,
                       double *share)
{
  char number[32];
  const size_t length = strlen(scalar->text);
  if ((setting->flags & PLM_SETTING_SHARE) == 0 || scalar->quoted || length < 2 ||
      length > sizeof number || scalar->text[length - 1] != '%')
    return false;
  snprintf(number, sizeof number, "%.*s", (int)length - 1, scalar->text);
  if (!parse_number(number, share) || *share < 0 || *share > 100) return false;
  *share /= 100;
  return true;
}

static bool read_number(const struct plm_setting *setting, const struct plm_scalar *scalar,
                        double *number, char message[MESSAGE_SIZE])
{
  if (scalar->quoted || !parse_number(scalar->text, number)) {
    const struct plm_value single = {.items = scalar, .count = 1};
    if (setting->type == PLM_SETTING_DOUBLE) return wrong_type(setting, &single, message);
    snprintf(message, MESSAGE_SIZE, "expected a number, found \"%.80s\"", scalar->text);
    return false;
  }
  return in_range(setting, *number, scalar->text, message);
}

/* ---- words --------------------------------------------------------------------------------- */

static bool no_such_choice(const struct plm_setting *setting, const char *text,
                           char message[MESSAGE_SIZE])
{
  struct plm_suggestion suggestion = {.word = text};
  for (int i = 0; setting->choices[i] != NULL; i++) plm_suggest(&suggestion, setting->choices[i]);
  char expected[256];
  plm_setting_describe(setting, expected);
  const int used = snprintf(message, MESSAGE_SIZE, "expected %s, found \"%.80s\"", expected, text);
  if (suggestion.best != NULL) {
    snprintf(message + used, MESSAGE_SIZE - (size_t)used, "; did you mean \"%s\"?",
             suggestion.best);
  }
  return false;
}

/* HOST:PORT, where PORT is a number or *. */
static bool valid_address(const char *text, bool any_host)
{
  const char *colon = strrchr(text, ':');
  if (colon == NULL || (colon == text && !any_host) || strpbrk(text, "/ ") != NULL) return false;
  if (strcmp(colon + 1, "*") == 0) return true;
  uint64_t port;
  bool too_large;
  return parse_whole(colon + 1, &port, &too_large) && !too_large && port <= 65535;
}

/* Whether the host of HOST:PORT has colons but no brackets. */
static bool bare_ipv6(const char *text)
{
  const char *colon = strrchr(text, ':');
  return colon != NULL && text[0] != '[' && memchr(text, ':', (size_t)(colon - text)) != NULL;
}

/* A copy of text, with the path of ipc:// made absolute. Abstract names (ipc://@name) are kept. */
static char *read_endpoint(const char *base, const char *text, char message[MESSAGE_SIZE])
{
  static const char ipc[] = "ipc://";
  message[0] = '\0';
  if (strncmp(text, "tcp://", 6) == 0 && bare_ipv6(text + 6)) {
    snprintf(message, MESSAGE_SIZE,
             "an IPv6 address needs brackets, as in tcp://[::1]:5701, found \"%.80s\"", text);
    return NULL;
  }
  if (strncmp(text, "tcp://", 6) == 0 && valid_address(text + 6, false)) return plm_strdup(text);
  if (strncmp(text, ipc, 6) == 0 && text[6] != '\0') {
    if (text[6] == '@') return plm_strdup(text);
    char *path = plm_setting_absolute_path(base, text + 6), *endpoint = NULL;
    if (strlen(path) <= IPC_PATH_LIMIT)
      endpoint = plm_format("%s%s", ipc, path);
    else
      snprintf(message, MESSAGE_SIZE,
               "the path of the socket has %zu bytes, but the system allows only %d; use a shorter "
               "one",
               strlen(path), IPC_PATH_LIMIT);
    free(path);
    return endpoint;
  }
  snprintf(message, MESSAGE_SIZE, "expected tcp://HOST:PORT or ipc://PATH, found \"%.80s\"", text);
  return NULL;
}

static char *read_address(const char *text, char message[MESSAGE_SIZE])
{
  if (valid_address(text, true)) return plm_strdup(text);
  snprintf(message, MESSAGE_SIZE, "expected HOST:PORT, for example 127.0.0.1:9464, found \"%.80s\"",
           text);
  return NULL;
}

static bool store_string(const struct plm_setting *setting, const struct plm_scalar *scalar,
                         const char *base, char **target, char message[MESSAGE_SIZE])
{
  char *text = NULL;
  if (plm_scalar_is_null(scalar)) {
    if ((setting->flags & PLM_SETTING_NULLABLE) == 0) {
      const struct plm_value single = {.items = scalar, .count = 1};
      return wrong_type(setting, &single, message);
    }
  } else if (scalar->text[0] == '\0') {
    snprintf(message, MESSAGE_SIZE, "must not be empty");
    return false;
  } else {
    if (setting->type == PLM_SETTING_PATH || setting->type == PLM_SETTING_CORPUS)
      text = plm_setting_absolute_path(base, scalar->text);
    else if (setting->type == PLM_SETTING_STRING)
      text = plm_strdup(scalar->text);
    else if (setting->type == PLM_SETTING_ADDRESS)
      text = read_address(scalar->text, message);
    else
      text = read_endpoint(base, scalar->text, message);
    if (text == NULL) return false;
    if (strlen(text) >= PLM_PATH_SIZE) {
      snprintf(message, MESSAGE_SIZE, "must not be longer than %d bytes", PLM_PATH_SIZE - 1);
      free(text);
      return false;
    }
  }
  free(*target);
  *target = text;
  return true;
}

/* ---- lists --------------------------------------------------------------------------------- */

static bool store_doubles(const struct plm_setting *setting, const struct plm_value *value,
                          double *target, size_t *culprit, char message[MESSAGE_SIZE])
{
  double numbers[PLM_MAX_MASK_RATES];
  for (size_t i = 0; i < value->count; i++) {
    *culprit = i;
    if (!read_number(setting, &value->items[i], &numbers[i], message)) return false;
  }
  memcpy(target, numbers, value->count * sizeof *numbers);
  return true;
}

static bool store_pattern(const struct plm_value *value, uint8_t *target, size_t *culprit,
                          char message[MESSAGE_SIZE])
{
  uint8_t kinds[PLM_MAX_PATTERN];
  for (size_t i = 0; i < value->count; i++) {
    struct plm_error error = {0};
    *culprit = i;
    if (plm_attention_kind_parse(value->items[i].text, &kinds[i], &error) != PLM_OK) {
      snprintf(message, MESSAGE_SIZE, "%s", error.what);
      return false;
    }
  }
  memcpy(target, kinds, value->count);
  return true;
}

/* Copies the texts of a list into target, which has `size` entries. */
static void store_texts(const struct plm_value *value, char **target, size_t size)
{
  for (size_t i = 0; i < size; i++) {
    free(target[i]);
    target[i] = i < value->count ? plm_strdup(value->items[i].text) : NULL;
  }
}

static bool store_choices(const struct plm_setting *setting, const struct plm_value *value,
                          uint32_t *target, size_t *culprit, char message[MESSAGE_SIZE])
{
  uint32_t bits = 0;
  for (size_t i = 0; i < value->count; i++) {
    *culprit = i;
    const int choice = plm_text_find(setting->choices, value->items[i].text);
    if (choice < 0) return no_such_choice(setting, value->items[i].text, message);
    if ((bits >> choice & 1) != 0) {
      snprintf(message, MESSAGE_SIZE, "\"%s\" is listed twice", value->items[i].text);
      return false;
    }
    bits |= 1U << choice;
  }
  *target = bits;
  return true;
}

static bool store_splits(const struct plm_setting *setting, const struct plm_value *value,
                         char **target, size_t *culprit, char message[MESSAGE_SIZE])
{
  bool seen[PLM_MAX_SPLITS] = {false};
  for (size_t i = 0; i < value->count; i++) {
    *culprit = i;
    const int split = plm_text_find(setting->choices, value->items[i].text);
    if (split < 0) return no_such_choice(setting, value->items[i].text, message);
    if (seen[split]) {
      snprintf(message, MESSAGE_SIZE, "\"%s\" is listed twice", value->items[i].text);
      return false;
    }
    seen[split] = true;
  }
  store_texts(value, target, PLM_MAX_SPLITS);
  return true;
}

bool plm_config_host(const char *entry, char name[PLM_HOST_SIZE], uint32_t *slots)
{
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const size_t length = strspn(entry, allowed);
  uint64_t number;
  bool too_large;
  if (length == 0 || length >= PLM_HOST_SIZE || entry[0] == '-' || entry[length] != ':' ||
      !parse_whole(entry + length + 1, &number, &too_large) || too_large || number == 0 ||
      number > PLM_MAX_RANKS)
    return false;
  snprintf(name, PLM_HOST_SIZE, "%.*s", (int)length, entry);
  *slots = (uint32_t)number;
  return true;
}

static bool store_hosts(const struct plm_value *value, char **target, size_t *culprit,
                        char message[MESSAGE_SIZE])
{
  for (size_t i = 0; i < value->count; i++) {
    char name[PLM_HOST_SIZE], other[PLM_HOST_SIZE];
    uint32_t slots;
    *culprit = i;
    if (!plm_config_host(value->items[i].text, name, &slots)) {
      snprintf(message, MESSAGE_SIZE,
               "expected NAME:SLOTS with 1 to %d slots, for example node1:8, found \"%.200s\"",
               PLM_MAX_RANKS, value->items[i].text);
      return false;
    }
    for (size_t j = 0; j < i; j++) {
      if (!plm_config_host(value->items[j].text, other, &slots) || strcmp(name, other) != 0)
        continue;
      snprintf(message, MESSAGE_SIZE, "\"%s\" is listed twice", name);
      return false;
    }
  }
  store_texts(value, target, PLM_MAX_HOSTS);
  return true;
}

static bool store_names(const struct plm_setting *setting, const struct plm_value *value,
                        char **target, size_t *culprit, char message[MESSAGE_SIZE])
{
  for (size_t i = 0; i < value->count; i++) {
    const char *name = value->items[i].text;
    *culprit = i;
    if (plm_scalar_is_null(&value->items[i]) || name[0] == '\0') {
      snprintf(message, MESSAGE_SIZE, "expected a name, found %s",
               name[0] == '\0' ? "nothing" : "null");
      return false;
    }
    for (size_t j = 0; j < i; j++) {
      if (strcmp(name, value->items[j].text) != 0) continue;
      snprintf(message, MESSAGE_SIZE, "\"%.200s\" is listed twice", name);
      return false;
    }
  }
  store_texts(value, target, setting->count_max);
  return true;
}

static bool store_list(const struct plm_setting *setting, const struct plm_value *value,
                       struct plm_config *config, size_t *culprit, char message[MESSAGE_SIZE])
{
  void *target = setting_value_field(setting, config);
  const bool one = setting->type == PLM_SETTING_NAMES;
  if ((!value->is_list && !one) || setting->type == PLM_SETTING_SETS ||
      setting->type == PLM_SETTING_TASKS)
    return wrong_type(setting, value, message);
  if (value->count < setting->count_min || value->count > setting->count_max) {
    snprintf(message, MESSAGE_SIZE, "expected %u to %u entries, found %zu", setting->count_min,
             setting->count_max, value->count);
    if (setting->count_min == setting->count_max) {
      snprintf(message, MESSAGE_SIZE, "expected %u entries, found %zu", setting->count_max,
               value->count);
    }
    return false;
  }
  bool stored;
  if (setting->type == PLM_SETTING_DOUBLES) {
    stored = store_doubles(setting, value, target, culprit, message);
  } else if (setting->type == PLM_SETTING_PATTERN) {
    stored = store_pattern(value, target, culprit, message);
  } else if (setting->type == PLM_SETTING_CHOICES) {
    stored = store_choices(setting, value, target, culprit, message);
  } else if (setting->type == PLM_SETTING_HOSTS) {
    stored = store_hosts(value, target, culprit, message);
  } else if (setting->type == PLM_SETTING_NAMES) {
    stored = store_names(setting, value, target, culprit, message);
  } else {
    stored = store_splits(setting, value, target, culprit, message);
  }
  if (stored && setting->count_offset != PLM_NO_OFFSET) {
    *(uint32_t *)((char *)config + setting->count_offset) = (uint32_t)value->count;
  }
  return stored;
}

/* ---- storing ------------------------------------------------------------------------------- */

static bool store_bool(const struct plm_setting *setting, const struct plm_value *value,
                       bool *target, char message[MESSAGE_SIZE])
{
  const struct plm_scalar *scalar = &value->items[0];
  const bool yes = strcmp(scalar->text, "true") == 0;
  if (scalar->quoted || (!yes && strcmp(scalar->text, "false") != 0))
    return wrong_type(setting, value, message);
  *target = yes;
  return true;
}

static bool store_choice(const struct plm_setting *setting, const struct plm_value *value,
                         int *target, char message[MESSAGE_SIZE])
{
  const int choice = plm_text_find(setting->choices, value->items[0].text);
  if (choice < 0) return no_such_choice(setting, value->items[0].text, message);
  *target = choice;
  return true;
}

bool plm_setting_store(const struct plm_setting *setting, const struct plm_value *value,
                       const char *base, struct plm_config *config, size_t *culprit,
                       char message[512])
{
  void *target = setting_value_field(setting, config);
  *culprit = 0;
  if (plm_setting_is_list(setting)) return store_list(setting, value, config, culprit, message);
  if (value->is_list) return wrong_type(setting, value, message);
  const struct plm_scalar *scalar = &value->items[0];
  const bool is_word = setting->word != NULL && !scalar->quoted &&
                       (strcmp(scalar->text, setting->word) == 0 ||
                        (strcmp(setting->word, "null") == 0 && plm_scalar_is_null(scalar)));
  uint64_t whole = 0;
  double share;
  switch (setting->type) {
  case PLM_SETTING_BOOL: return store_bool(setting, value, target, message);
  case PLM_SETTING_U32:
  case PLM_SETTING_U64:
    if (read_share(setting, scalar, &share))
      config->origins[plm_setting_index(setting)].share = share;
    else if (!is_word && !read_whole(setting, value, &whole, message))
      return false;
    if (setting->type == PLM_SETTING_U32)
      *(uint32_t *)target = (uint32_t)whole;
    else
      *(uint64_t *)target = whole;
    return true;
  case PLM_SETTING_DOUBLE: return read_number(setting, scalar, target, message);
  case PLM_SETTING_CHOICE: return store_choice(setting, value, target, message);
  case PLM_SETTING_STEPS: return plm_step_range_store(scalar, target, message);
  default: break;
  }
  if (!store_string(setting, scalar, base, target, message)) return false;
  if (setting->type == PLM_SETTING_CORPUS) plm_sources_release(config);
  return true;
}

void plm_setting_release(const struct plm_setting *setting, struct plm_config *config)
{
  char **strings = setting_value_field(setting, config);
  size_t count = 0;
  if (setting->type == PLM_SETTING_STRING || setting->type == PLM_SETTING_PATH ||
      setting->type == PLM_SETTING_ENDPOINT || setting->type == PLM_SETTING_ADDRESS ||
      setting->type == PLM_SETTING_CORPUS) {
    count = 1;
    if (setting->type == PLM_SETTING_CORPUS) plm_sources_release(config);
  } else if (setting->type == PLM_SETTING_SPLITS) {
    count = PLM_MAX_SPLITS;
  } else if (setting->type == PLM_SETTING_HOSTS) {
    count = PLM_MAX_HOSTS;
  } else if (setting->type == PLM_SETTING_NAMES) {
    count = setting->count_max;
  } else if (setting->type == PLM_SETTING_SETS) {
    plm_config_sets_release(&config->evaluator);
  } else if (setting->type == PLM_SETTING_TASKS) {
    plm_config_tasks_release(&config->evaluator);
  }
  for (size_t i = 0; i < count; i++) {
    free(strings[i]);
    strings[i] = NULL;
  }
}
