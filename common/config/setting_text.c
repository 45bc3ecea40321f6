/* What the values of settings look like as text: the type and limits of a row, and numbers, strings
 * and paths as a configuration has them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/text.h"
#include "common/config/settings.h"

static const char *type_name(const struct plm_setting *setting)
{
  switch (setting->type) {
  case PLM_SETTING_BOOL: return "true or false";
  case PLM_SETTING_U32:
  case PLM_SETTING_U64:
    return (setting->flags & PLM_SETTING_POWER_OF_TWO) != 0 ? "a power of two"
           : (setting->flags & PLM_SETTING_SHARE) != 0      ? "a whole number or a share (25%)"
                                                            : "a whole number";
  case PLM_SETTING_DOUBLE: return "a number";
  case PLM_SETTING_STRING: return "a string";
  case PLM_SETTING_PATH: return "a path";
  case PLM_SETTING_CORPUS: return "a path, a list of {path, weight, final_weight, sampling}";
  case PLM_SETTING_ENDPOINT: return "tcp://HOST:PORT or ipc://PATH";
  case PLM_SETTING_ADDRESS: return "HOST:PORT";
  case PLM_SETTING_STEPS: return "a step or FIRST-LAST";
  case PLM_SETTING_DOUBLES:
    return setting->count_offset == PLM_NO_OFFSET ? "a list of two numbers" : "a list of numbers";
  case PLM_SETTING_HOSTS: return "a list of NAME:SLOTS";
  case PLM_SETTING_NAMES: return "a list of names";
  case PLM_SETTING_PATTERN: return "a list of masks";
  case PLM_SETTING_SETS: return "a list of {name: NAME, corpus: DIR, split: SPLIT}";
  case PLM_SETTING_TASKS: return "a list of {name: NAME, kind: KIND, path: PATH, ...}";
  case PLM_SETTING_CHOICE:
  case PLM_SETTING_CHOICES:
  case PLM_SETTING_SPLITS: break;
  }
  return "";
}

void plm_setting_describe(const struct plm_setting *setting, char text[256])
{
  struct plm_text all = {0};
  if (setting->choices != NULL) {
    plm_text_puts(&all, plm_setting_is_list(setting) ? "a list of " : "");
    plm_text_put_list(&all, setting->choices, " or ");
  } else {
    plm_text_puts(&all, type_name(setting));
  }
  if (setting->word != NULL || (setting->flags & PLM_SETTING_NULLABLE) != 0)
    plm_text_printf(&all, " or %s", setting->word != NULL ? setting->word : "null");
  (void)snprintf(text, 256, "%s", all.data);
  plm_text_deinit(&all);
}

static void number_text(double value, char text[40])
{
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, 40, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
}

void plm_setting_limit(const struct plm_setting *setting, bool most, char text[40])
{
  const double value = most ? setting->max : setting->min;
  if (setting->type != PLM_SETTING_U64)
    number_text(value, text);
  else /* the nearest double of UINT64_MAX is UINT64_MAX + 1 */
    snprintf(text, 40, "%" PRIu64, value >= 0x1p64 ? UINT64_MAX : (uint64_t)value);
}

void plm_setting_print_number(struct plm_text *text, double value)
{
  char number[40];
  number_text(value, number);
  plm_text_puts(text, number);
}

void plm_setting_put_string(struct plm_text *text, const char *string)
{
  static const char safe[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@=";
  if (string == NULL) {
    plm_text_puts(text, "null");
    return;
  }
  const bool endpoint = strncmp(string, "tcp://", 6) == 0 || strncmp(string, "ipc://", 6) == 0;
  const bool plain =
      (string[0] == '/' && string[strspn(string, safe)] == '\0') ||
      (endpoint &&
       string[6 + strspn(string + 6, "0123456789.:/_-*abcdefghijklmnopqrstuvwxyz")] == '\0');
  if (plain) {
    plm_text_puts(text, string);
    return;
  }
  plm_text_puts(text, "\"");
  for (const unsigned char *c = (const unsigned char *)string; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\')
      plm_text_printf(text, "\\%c", *c);
    else if (*c < 0x20 || *c == 0x7f)
      plm_text_printf(text, "\\x%02X", *c);
    else
      plm_text_append(text, c, 1);
  }
  plm_text_puts(text, "\"");
}

char *plm_setting_absolute_path(const char *base, const char *path)
{
  while (path[0] == '.' && path[1] == '/') {
    path += 2;
    while (*path == '/') path++;
  }
  const bool here = strcmp(path, ".") == 0;
  char *joined = path[0] == '/' ? plm_strdup(path)
                                : plm_format("%s%s%s", base, here ? "" : "/", here ? "" : path);
  size_t length = strlen(joined);
  while (length > 1 && joined[length - 1] == '/') joined[--length] = '\0';
  return joined;
}
