/* Collects the resumes of a run and what they changed. */
#include "stages/views/report_marks.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text/strict_json.h"
#include "stages/views/metrics_curves.h"

static void report_marks_insert(struct plm_report_marks *marks, uint64_t step, const char *text,
                                size_t length)
{
  if (marks->count == PLM_REPORT_MARKS) return;
  size_t place = marks->count;
  while (place > 0 && marks->list[place - 1].step > step) place--;
  memmove(&marks->list[place + 1], &marks->list[place],
          (marks->count - place) * sizeof marks->list[0]);
  marks->list[place].step = step;
  snprintf(marks->list[place].text, PLM_MARK_SIZE, "%.*s", (int)length, text);
  marks->count++;
}

void plm_marks_add_history(struct plm_report_marks *marks, const struct cJSON *history)
{
  const cJSON *entry, *line;
  uint64_t step;
  cJSON_ArrayForEach(entry, history)
  {
    if (!plm_json_count(cJSON_GetObjectItemCaseSensitive(entry, "step"), &step)) continue;
    const cJSON *lines = cJSON_GetObjectItemCaseSensitive(entry, "changes");
    cJSON_ArrayForEach(line, lines)
    {
      const char *text = cJSON_GetStringValue(line);
      if (text != NULL && text[0] != '\0') report_marks_insert(marks, step, text, strlen(text));
    }
  }
}

void plm_marks_add_changes(struct plm_report_marks *marks, uint64_t step, const char *changes)
{
  while (changes != NULL && *changes != '\0') {
    const size_t length = strcspn(changes, "\n");
    report_marks_insert(marks, step, changes, length);
    changes += length + (changes[length] == '\n');
  }
}

void plm_marks_add_resumes(struct plm_report_marks *marks, const struct plm_curve *resumed)
{
  for (size_t i = 0; resumed != NULL && i < resumed->count; i++) {
    const uint64_t step =
        resumed->y[i] >= 0 && resumed->y[i] < 0x1p53 ? (uint64_t)resumed->y[i] : 0;
    bool known = false;
    for (size_t m = 0; m < marks->count; m++) known |= marks->list[m].step == step;
    if (!known) report_marks_insert(marks, step, "", 0);
  }
}

/* A key without its sections, and the new value; of a corpus, everything. */
void plm_mark_label(const struct plm_report_mark *mark, char *label, size_t size)
{
  const char *colon = strstr(mark->text, ": "), *arrow = strstr(mark->text, " -> ");
  if (mark->text[0] == '\0') {
    snprintf(label, size, "resumed");
    return;
  }
  if (colon == NULL || arrow == NULL || strncmp(mark->text, "corpus", 6) == 0) {
    snprintf(label, size, "%s", mark->text);
    return;
  }
  const char *key = colon;
  while (key > mark->text && key[-1] != '.') key--;
  snprintf(label, size, "%.*s %s", (int)(colon - key), key, arrow + strlen(" -> "));
}
