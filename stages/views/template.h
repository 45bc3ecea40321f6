/* Fills in a template: the text of a file, in which names in capital letters stand for values.
 *
 *   a line with @NAME@    has the value in its place. It is written once for each value that has
 *                         been given under the name, so not at all if there is none.
 *   @if NAME@ … @end@     on lines of their own: what is between them, if there is a value. They
 *   @if !NAME@ … @end@    may contain each other. With !, if there is none.
 *
 * Every other @ stays as it is. */
#ifndef PLM_STAGES_VIEWS_TEMPLATE_H
#define PLM_STAGES_VIEWS_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/text/text.h"

struct plm_template_value {
  const char *name;
  bool declared; /* only: it has no text */
  struct plm_text text;
};

/* {0}: no values. The caller calls _deinit. */
struct plm_template_values {
  struct plm_template_value *all;
  size_t count, room;
};

/* Says that the template may have the name, which is borrowed. It has no value yet. */
void plm_template_declare(struct plm_template_values *values, const char *name);
/* Gives the name another value, to which the caller appends, before the next call of these two. */
struct plm_text *plm_template_add(struct plm_template_values *values, const char *name);
/* Gives the name each line of the text as a value, so that a line of the template with the name
 * alone becomes all of them, each with the line's indent. */
void plm_template_add_lines(struct plm_template_values *values, const char *name,
                            const char *lines);
/* Also overwrites the values, of which some may be secret. */
void plm_template_deinit(struct plm_template_values *values);

/* Appends the template with its values. That the template has a name that nobody has given or
 * declared, or an @if without @end, is a programming error. */
void plm_template_fill(const char *source, const struct plm_template_values *values,
                       struct plm_text *text);

#endif
