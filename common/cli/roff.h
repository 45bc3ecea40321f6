/* Builds manual pages in roff with the man macros, from the same texts and tables as the help. */
#ifndef PLM_COMMON_CLI_ROFF_H
#define PLM_COMMON_CLI_ROFF_H

#include "common/base/text/text.h"
#include "common/cli/options.h"

/* Begins the page NAME(section): its title and the section NAME. summary: one line without a full
 * stop. */
void plm_roff_begin(struct plm_text *text, const char *name, int section, const char *summary);
/* Begins a section ("OPTIONS") or a subsection. */
void plm_roff_section(struct plm_text *text, const char *title);
void plm_roff_subsection(struct plm_text *text, const char *title);
/* Appends characters of a help text on one line: what roff obeys is escaped, and `code` is bold. */
void plm_roff_put(struct plm_text *text, const char *string, size_t size);
/* Appends a help text: lines join into paragraphs, which end before an empty or an indented line;
 * indented lines are kept as they are. */
void plm_roff_paragraphs(struct plm_text *text, const char *help);
/* Appends an item of a list: a term in bold, and a help text. */
void plm_roff_item(struct plm_text *text, const char *term, const char *help);
/* Appends the items of a table of options. */
void plm_roff_options(struct plm_text *text, const struct plm_option *table);
/* Appends a command line of the synopsis: the first `bold` bytes are bold. */
void plm_roff_synopsis(struct plm_text *text, const char *line, size_t bold);
/* Appends "page(section)" as a reference to another page, after a comma unless it is the first. */
void plm_roff_refer(struct plm_text *text, const char *page, int section, bool first);

#endif
