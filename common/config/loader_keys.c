/* What a loader knows of a key: see loader_keys.h. */
#include "common/config/loader_keys.h"

#include <stdlib.h>
#include <string.h>

#include "common/config/settings.h"

size_t plm_key_row(const char *key)
{
  const struct plm_setting *setting = plm_setting_find(key);
  PLM_ASSERT(setting != NULL);
  return plm_setting_index(setting);
}

bool plm_key_is_bad(const struct plm_loader *loader, const char *key)
{
  return loader->bad[plm_key_row(key)];
}

bool plm_key_is_given(const struct plm_loader *loader, const char *key)
{
  return loader->config->origins[plm_key_row(key)].kind != PLM_ORIGIN_DEFAULT;
}

bool plm_key_is_changed(const struct plm_loader *loader, const char *key)
{
  const struct plm_setting *setting = plm_setting_find(key);
  char *value = plm_setting_print(setting, loader->config);
  const bool number = setting->type == PLM_SETTING_DOUBLE;
  const bool same = number ? strtod(value, NULL) == strtod(setting->fallback, NULL)
                           : strcmp(value, setting->fallback) == 0;
  free(value);
  return plm_key_is_given(loader, key) && !plm_key_is_bad(loader, key) && !same;
}

struct plm_place plm_key_place(const struct plm_loader *loader, const char *key, const char *other)
{
  const struct plm_place place = loader->places[plm_key_row(key)];
  return place.input == NULL && other != NULL ? loader->places[plm_key_row(other)] : place;
}
