/* Looking up rows of the table of settings. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/config/settings.h"

const struct plm_setting *plm_setting_find(const char *key)
{
  size_t count;
  const struct plm_setting *settings = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(settings[i].key, key) == 0) return &settings[i];
  }
  return NULL;
}

size_t plm_setting_index(const struct plm_setting *setting)
{
  return (size_t)(setting - plm_settings(NULL));
}

bool plm_setting_is_list(const struct plm_setting *setting)
{
  return setting->type == PLM_SETTING_DOUBLES || setting->type == PLM_SETTING_SPLITS ||
         setting->type == PLM_SETTING_CHOICES || setting->type == PLM_SETTING_HOSTS ||
         setting->type == PLM_SETTING_NAMES || setting->type == PLM_SETTING_PATTERN ||
         setting->type == PLM_SETTING_SETS || setting->type == PLM_SETTING_TASKS;
}

bool plm_setting_is_section(const char *key)
{
  const size_t length = strlen(key);
  size_t count;
  const struct plm_setting *settings = plm_settings(&count);
  for (size_t i = 0; i < count; i++) {
    if (strncmp(settings[i].key, key, length) == 0 && settings[i].key[length] == '.') return true;
  }
  return false;
}

bool plm_setting_variable(const char *key, char variable[96])
{
  variable[0] = '\0';
  if (strcmp(key, "version") == 0) return false;
  int used = snprintf(variable, 96, "PLM_%s", key);
  for (int i = 0; i < used && i < 95; i++) {
    variable[i] = variable[i] == '.' ? '_' : (char)toupper((unsigned char)variable[i]);
  }
  return true;
}

const char *plm_on_resume_name(enum plm_on_resume resume)
{
  static const char *const names[] = {"free", "changes the run", "refused",
                                      "refused if its content differs"};
  return names[resume];
}
