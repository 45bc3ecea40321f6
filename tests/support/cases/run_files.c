/* See run_files.h. */
#include "tests/support/cases/run_files.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/run/run.h"
#include "tests/support/harness/cmocka_all.h"

cJSON *run_files_metrics(const char *run, const char *file)
{
  char path[PLM_PATH_SIZE], *text;
  size_t size;
  cJSON *lines = cJSON_CreateArray();
  assert_int_equal(plm_path_join(path, run, file, NULL), PLM_OK);
  assert_int_equal(plm_file_read(path, 1 << 20, &text, &size, NULL), PLM_OK);
  for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';)
    cJSON_AddItemToArray(lines, cJSON_Parse(line));
  free(text);
  return lines;
}

bool run_files_has_endpoint(const char *run, const char *key)
{
  char value[512];
  return plm_endpoint_read(run, key, value, NULL) == PLM_OK;
}
