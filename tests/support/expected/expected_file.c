/* Compares a text with a file below tests/. */
#include "tests/support/expected/expected_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

void expected_file(const char *name, const char *text)
{
  const char *root = getenv("PLM_ROOT") != NULL ? getenv("PLM_ROOT") : ".";
  char path[PLM_PATH_SIZE], *wanted;
  size_t size;
  struct plm_error error = {0};
  snprintf(path, sizeof path, "%s/tests/%s", root, name);
  if (getenv("PLM_WRITE_EXPECTED") != NULL) scratch_write(path, text, strlen(text));
  if (plm_file_read(path, 1 << 24, &wanted, &size, &error) != PLM_OK) fail_msg("%s", error.what);
  if (strcmp(wanted, text) != 0) {
    size_t line = 1, begin = 0;
    for (size_t i = 0; wanted[i] == text[i]; i++) {
      if (wanted[i] != '\n') continue;
      line++;
      begin = i + 1;
    }
    fail_msg("%s:%zu: got\n  %.*s\ninstead of\n  %.*s", path, line,
             (int)strcspn(text + begin, "\n"), text + begin, (int)strcspn(wanted + begin, "\n"),
             wanted + begin);
  }
  free(wanted);
}
