/* What a terminal can do. */
#include "common/base/log/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool plm_terminal_can_redraw(int descriptor)
{
  const char *term = getenv("TERM");
  return isatty(descriptor) == 1 && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

/* The environment is read, and not the program's locale, because programs keep the C locale so that
 * numbers have decimal points. */
bool plm_terminal_is_utf8(void)
{
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value == NULL || value[0] == '\0') continue;
    return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
  }
  return false;
}
