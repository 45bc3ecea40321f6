/* Filling in a template, line by line. */
#include "stages/views/template.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

/* ---- values -------------------------------------------------------------------------------- */

static struct plm_template_value *template_append(struct plm_template_values *values,
                                                  const char *name)
{
  if (values->count == values->room) {
    values->room = values->room == 0 ? 32 : 2 * values->room;
    values->all = plm_realloc(values->all, values->room * sizeof *values->all);
  }
  values->all[values->count] = (struct plm_template_value){.name = name};
  return &values->all[values->count++];
}

void plm_template_declare(struct plm_template_values *values, const char *name)
{
  template_append(values, name)->declared = true;
}

struct plm_text *plm_template_add(struct plm_template_values *values, const char *name)
{
  return &template_append(values, name)->text;
}

void plm_template_add_lines(struct plm_template_values *values, const char *name, const char *lines)
{
  plm_template_declare(values, name);
  while (*lines != '\0') {
    const size_t length = strcspn(lines, "\n");
    plm_text_append(plm_template_add(values, name), lines, length);
    lines += length + (lines[length] == '\n');
  }
}

void plm_template_deinit(struct plm_template_values *values)
{
  for (size_t i = 0; i < values->count; i++) {
    struct plm_text *text = &values->all[i].text;
    if (text->data != NULL) explicit_bzero(text->data, text->length);
    plm_text_deinit(text);
  }
  free(values->all);
  *values = (struct plm_template_values){0};
}

static bool is_name(const struct plm_template_value *value, const char *name, size_t length)
{
  return strncmp(value->name, name, length) == 0 && value->name[length] == '\0';
}

/* How many values the name has. */
static size_t count_of(const struct plm_template_values *values, const char *name, size_t length)
{
  size_t found = 0;
  bool known = false;
  for (size_t i = 0; i < values->count; i++) {
    if (!is_name(&values->all[i], name, length)) continue;
    known = true;
    found += !values->all[i].declared;
  }
  PLM_ASSERT(known);
  return found;
}

/* The name's value of this number, or its last one. */
static const struct plm_text *value_of(const struct plm_template_values *values, const char *name,
                                       size_t length, size_t number)
{
  const struct plm_text *last = NULL;
  for (size_t i = 0; i < values->count; i++) {
    if (values->all[i].declared || !is_name(&values->all[i], name, length)) continue;
    last = &values->all[i].text;
    if (number-- == 0) break;
  }
  return last;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* The length of the name if @NAME@ begins here; 0 if it does not. */
static size_t name_at(const char *text, const char *end)
{
  if (*text != '@') return 0;
  const size_t length = strspn(text + 1, letters);
  return text + 1 + length < end && text[1 + length] == '@' ? length : 0;
}

/* How often the line is written: for a line without names, once. */
static size_t times(const struct plm_template_values *values, const char *line, const char *end)
{
  size_t most = 1;
  for (const char *c = line; c < end; c++) {
    const size_t length = name_at(c, end);
    if (length == 0) continue;
    const size_t count = count_of(values, c + 1, length);
    if (count == 0) return 0;
    if (count > most) most = count;
    c += length + 1;
  }
  return most;
}

static void template_put_line(const struct plm_template_values *values, const char *line,
                              const char *end, size_t number, struct plm_text *text)
{
  const char *plain = line; /* not written yet */
  for (const char *c = line; c < end; c++) {
    const size_t length = name_at(c, end);
    if (length == 0) continue;
    const struct plm_text *value = value_of(values, c + 1, length, number);
    plm_text_append(text, plain, (size_t)(c - plain));
    if (value->length > 0) plm_text_append(text, value->data, value->length);
    c += length + 1;
    plain = c + 1;
  }
  plm_text_append(text, plain, (size_t)(end - plain));
}

/* Whether the line is "@if NAME@" or "@if !NAME@"; then *holds is whether its condition does. */
static bool is_if(const struct plm_template_values *values, const char *line, bool *holds)
{
  if (strncmp(line, "@if ", 4) != 0) return false;
  const bool negated = line[4] == '!';
  const char *name = line + 4 + negated;
  const size_t length = strspn(name, letters);
  PLM_ASSERT(length > 0 && strncmp(name + length, "@\n", 2) == 0);
  *holds = (count_of(values, name, length) > 0) != negated;
  return true;
}

void plm_template_fill(const char *source, const struct plm_template_values *values,
                       struct plm_text *text)
{
  size_t depth = 0, hidden = 0; /* how many @if are open, and from which on nothing is written */
  for (const char *line = source, *next; *line != '\0'; line = next) {
    bool holds;
    next = line + strcspn(line, "\n");
    next += *next == '\n';
    if (is_if(values, line, &holds)) {
      depth++;
      if (!holds && hidden == 0) hidden = depth;
    } else if (strncmp(line, "@end@\n", 6) == 0) {
      PLM_ASSERT(depth > 0);
      if (hidden == depth) hidden = 0;
      depth--;
    } else if (hidden == 0) {
      const size_t count = times(values, line, next);
      for (size_t i = 0; i < count; i++) template_put_line(values, line, next, i, text);
    }
  }
  PLM_ASSERT(depth == 0);
}
