/* Writes roff with the man macros. */
#include "common/cli/roff.h"

#include <ctype.h>
#include <string.h>

void plm_roff_put(struct plm_text *text, const char *string, size_t size)
{
  bool bold = false;
  for (size_t i = 0; i < size; i++) {
    switch (string[i]) {
    case '\\': plm_text_puts(text, "\\e"); break;
    case '-': plm_text_puts(text, "\\-"); break;
    case '\'': plm_text_puts(text, "\\(aq"); break;
    case '^': plm_text_puts(text, "\\(ha"); break;
    case '~': plm_text_puts(text, "\\(ti"); break;
    case '\n': plm_text_puts(text, " "); break;
    case '`':
      plm_text_puts(text, bold ? "\\fR" : "\\fB");
      bold = !bold;
      break;
    case '.':
      if (i == 0) plm_text_puts(text, "\\&"); /* a point at the beginning would be a request */
      plm_text_puts(text, ".");
      break;
    default: plm_text_append(text, &string[i], 1);
    }
  }
  if (bold) plm_text_puts(text, "\\fR");
}

static void roff_put_line(struct plm_text *text, const char *string)
{
  plm_roff_put(text, string, strlen(string));
  plm_text_puts(text, "\n");
}

void plm_roff_begin(struct plm_text *text, const char *name, int section, const char *summary)
{
  plm_text_puts(text, ".\\\" Printed by `plm-pipeline manual`. Do not edit this page.\n.TH \"");
  for (const char *c = name; *c != '\0'; c++) {
    const char upper = (char)toupper((unsigned char)*c);
    plm_roff_put(text, &upper, 1);
  }
  plm_text_printf(text,
                  "\" %d \"\" \"plm\\-pipeline " PLM_VERSION "\" \"plm\\-pipeline\"\n.SH NAME\n",
                  section);
  plm_roff_put(text, name, strlen(name));
  plm_text_puts(text, " \\- ");
  roff_put_line(text, summary);
}

void plm_roff_section(struct plm_text *text, const char *title)
{
  plm_text_puts(text, ".SH \"");
  plm_roff_put(text, title, strlen(title));
  plm_text_puts(text, "\"\n");
}

void plm_roff_subsection(struct plm_text *text, const char *title)
{
  plm_text_puts(text, ".SS \"");
  plm_roff_put(text, title, strlen(title));
  plm_text_puts(text, "\"\n");
}

/* Length of the paragraph at help, which ends before an empty or an indented line. */
static size_t paragraph_of(const char *help)
{
  size_t size = 0;
  while (help[size] != '\0') {
    if (help[size] == '\n' && (help[size + 1] == ' ' || help[size + 1] == '\n')) return size;
    size++;
  }
  return size;
}

/* Paragraphs are separated by `between`; indented ones are not filled. */
static void put_paragraphs(struct plm_text *text, const char *help, const char *between)
{
  bool begun = false, table = false;
  while (*help != '\0') {
    if (*help == '\n') {
      help++;
      continue;
    }
    const size_t size = paragraph_of(help);
    const bool indented = *help == ' ';
    if (indented && !table) plm_text_puts(text, begun ? ".sp\n.RS 2\n.nf\n" : ".RS 2\n.nf\n");
    if (!indented && table) plm_text_puts(text, ".fi\n.RE\n");
    if (!indented && begun) plm_text_puts(text, between);
    table = indented;
    begun = true;
    const size_t spaces = strspn(help, " ");
    const int deeper = spaces > 2 ? (int)spaces - 2 : 0;
    plm_text_printf(text, "%*s", deeper, "");
    plm_roff_put(text, help + spaces, size - spaces);
    plm_text_puts(text, "\n");
    help += size;
    if (*help == '\n') help++;
  }
  if (table) plm_text_puts(text, ".fi\n.RE\n");
}

void plm_roff_paragraphs(struct plm_text *text, const char *help)
{
  plm_text_puts(text, ".PP\n");
  put_paragraphs(text, help, ".PP\n");
}

void plm_roff_item(struct plm_text *text, const char *term, const char *help)
{
  plm_text_puts(text, ".TP\n\\fB");
  plm_roff_put(text, term, strlen(term));
  plm_text_puts(text, "\\fR\n");
  put_paragraphs(text, help, ".IP\n");
}

void plm_roff_options(struct plm_text *text, const struct plm_option *table)
{
  for (; table != NULL && table->name != NULL; table++) {
    plm_text_puts(text, ".TP\n");
    if (table->letter != 0) plm_text_printf(text, "\\fB\\-%c\\fR, ", table->letter);
    plm_text_puts(text, "\\fB\\-\\-");
    plm_roff_put(text, table->name, strlen(table->name));
    plm_text_puts(text, "\\fR");
    if (table->argument != NULL) {
      plm_text_puts(text, " \\fI");
      plm_roff_put(text, table->argument, strlen(table->argument));
      plm_text_puts(text, "\\fR");
    }
    plm_text_puts(text, "\n");
    put_paragraphs(text, table->help, ".IP\n");
  }
}

void plm_roff_synopsis(struct plm_text *text, const char *line, size_t bold)
{
  plm_text_puts(text, ".PP\n\\fB");
  plm_roff_put(text, line, bold);
  plm_text_puts(text, "\\fR");
  plm_roff_put(text, line + bold, strlen(line) - bold);
  plm_text_puts(text, "\n");
}

void plm_roff_refer(struct plm_text *text, const char *page, int section, bool first)
{
  plm_text_puts(text, first ? "\\fB" : ",\n\\fB");
  plm_roff_put(text, page, strlen(page));
  plm_text_printf(text, "\\fR(%d)", section);
}
