/* The list of problems. */
#include "common/config/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text/printable.h"
#include "common/base/text/text.h"

enum { MOST_PROBLEMS = 200 };

struct plm_config_problems *plm_problems_new(void)
{
  return plm_alloc_zeroed(1, sizeof(struct plm_config_problems));
}

bool plm_problems_full(const struct plm_config_problems *problems)
{
  return problems->count == MOST_PROBLEMS;
}

void plm_problems_add(struct plm_config_problems *problems, struct plm_place place,
                      const char *format, ...)
{
  if (plm_problems_full(problems)) return;
  struct plm_text text = {0};
  if (place.input != NULL && place.line > 0) {
    plm_text_printf(&text, "%s:%u:%u: ", place.input, place.line, place.column);
  } else if (place.input != NULL) {
    plm_text_printf(&text, "%s: ", place.input);
  }
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  plm_text_put_printable(&text, message, strlen(message), PLM_PRINTABLE_LINE);
  for (size_t i = 0; i < problems->count; i++) {
    if (strcmp(problems->list[i].text, text.data) != 0) continue;
    plm_text_deinit(&text);
    return;
  }
  problems->list = plm_realloc(problems->list, (problems->count + 1) * sizeof *problems->list);
  problems->list[problems->count++] = (struct plm_problem){.place = place, .text = text.data};
}

void plm_problems_add_error(struct plm_config_problems *problems, struct plm_place place,
                            const char *what, const struct plm_error *error)
{
  if (error->status == PLM_NO_MEMORY)
    problems->no_memory = true;
  else if (error->status == PLM_NO_DESCRIPTORS)
    problems->no_descriptors = *error;
  else
    plm_problems_add(problems, place, "%s%s", what, error->what);
}

plm_status plm_problems_lack(const struct plm_config_problems *problems, struct plm_error *error)
{
  const struct plm_error *unopened = &problems->no_descriptors;
  if (problems->no_memory)
    return plm_error_set(error, PLM_NO_MEMORY, "no memory for the configuration");
  if (unopened->status == PLM_OK) return PLM_OK;
  return plm_error_set(error, unopened->status, "%s", unopened->what);
}

static bool comes_after(struct plm_place a, struct plm_place b)
{
  if (a.file != b.file) return a.file > b.file;
  return a.line > b.line || (a.line == b.line && a.column > b.column);
}

void plm_problems_sort(struct plm_config_problems *problems)
{
  /* Insertion sort: it is stable, and the list is short and nearly sorted. */
  for (size_t i = 1; i < problems->count; i++) {
    const struct plm_problem moving = problems->list[i];
    size_t j = i;
    while (j > 0 && moving.place.line != 0 && problems->list[j - 1].place.line != 0 &&
           comes_after(problems->list[j - 1].place, moving.place)) {
      problems->list[j] = problems->list[j - 1];
      j--;
    }
    problems->list[j] = moving;
  }
}

size_t plm_config_problems_count(const struct plm_config_problems *problems)
{
  return problems != NULL ? problems->count : 0;
}

const char *plm_config_problem(const struct plm_config_problems *problems, size_t i)
{
  return problems->list[i].text;
}

void plm_config_problems_print(const struct plm_config_problems *problems)
{
  for (size_t i = 0; i < plm_config_problems_count(problems); i++) {
    struct plm_text line = {0}; /* a key on the command line may have a line break */
    const char *text = problems->list[i].text;
    plm_text_put_printable(&line, text, strlen(text), PLM_PRINTABLE_LINE);
    if (line.data != NULL) fprintf(stderr, "%s\n", line.data);
    plm_text_deinit(&line);
  }
}

void plm_config_problems_free(struct plm_config_problems *problems)
{
  if (problems == NULL) return;
  for (size_t i = 0; i < problems->count; i++) free(problems->list[i].text);
  free(problems->list);
  free(problems);
}
