/* Reads the first line of a profile. */
#include "common/run/run_profile.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"

enum { LINE_SIZE = 1 << 14 };

/* Reads the line as an object of its own: the list of events, which begins at its end, is cut off.
 */
static cJSON *read_head(const char *path)
{
  static const char list[] = ",\"traceEvents\":[\n";
  char line[LINE_SIZE];
  FILE *file = fopen(path, "re");
  if (file == NULL) return NULL;
  const bool read = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  if (!read || !plm_text_ends_with(line, list)) return NULL;
  memcpy(line + strlen(line) - strlen(list), "}", 2);
  return plm_json_line(line);
}

bool plm_run_profile_steps(const char *path, uint64_t *first, uint64_t *last)
{
  cJSON *head = read_head(path);
  const cJSON *facts = cJSON_GetObjectItemCaseSensitive(head, "otherData");
  const bool good = strcmp(plm_json_string(facts, "format", ""), "plm-profile") == 0 &&
                    plm_json_count(cJSON_GetObjectItemCaseSensitive(facts, "first_step"), first) &&
                    plm_json_count(cJSON_GetObjectItemCaseSensitive(facts, "last_step"), last);
  cJSON_Delete(head);
  return good;
}
