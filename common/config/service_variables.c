/* Compares the end of the name with the forms that Kubernetes writes. */
#include "common/config/service_variables.h"

#include <regex.h>
#include <stddef.h>

static bool matches(const char *text, const char *pattern)
{
  regex_t compiled;
  if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = regexec(&compiled, text, 0, NULL, 0) == 0;
  regfree(&compiled);
  return found;
}

bool plm_is_service_variable(const char *name, const char *value)
{
  static const char link[] = "^(tcp|udp|sctp)://";
  static const struct {
    const char *name, *value;
  } forms[] = {
      {"_SERVICE_HOST$", "^[0-9A-Fa-f.:]+$"},
      {"_SERVICE_PORT(_[A-Z0-9_]+)?$", "^[0-9]+$"},
      {"_PORT$", link},
      {"_PORT_[0-9]+_(TCP|UDP|SCTP)$", link},
      {"_PORT_[0-9]+_(TCP|UDP|SCTP)_PROTO$", "^(tcp|udp|sctp)$"},
      {"_PORT_[0-9]+_(TCP|UDP|SCTP)_PORT$", "^[0-9]+$"},
      {"_PORT_[0-9]+_(TCP|UDP|SCTP)_ADDR$", "^[0-9A-Fa-f.:]+$"},
  };
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
    if (matches(name, forms[i].name) && matches(value, forms[i].value)) return true;
  return false;
}
