/* Reads the first line of a profile. */
#include "common/run/run_profile.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "common/base/text/text.h"

enum { LINE_SIZE = 1 << 14 };

/* The list of events, which begins at the end of the line, is cut off. */
cJSON *plm_run_profile_head(char *line)
{
  static const char list[] = ",\"traceEvents\":[\n";
  if (!plm_text_ends_with(line, list)) return NULL;
  memcpy(line + strlen(line) - strlen(list), "}", 2);
  return plm_json_line(line);
}

static cJSON *read_head(const char *path)
{
  char line[LINE_SIZE];
  FILE *file = fopen(path, "re");
  if (file == NULL) return NULL;
  const bool read = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  return read ? plm_run_profile_head(line) : NULL;
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
