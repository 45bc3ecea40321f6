/* The rows of the tables in a report. */
#include "stages/views/report.h"

void plm_report_row(struct plm_text *text, const char *heading, const char *const *cells,
                    size_t count)
{
  plm_text_puts(text, "<th scope=\"row\">");
  plm_text_put_html(text, heading);
  plm_text_puts(text, "</th>");
  for (size_t i = 0; i < count; i++) {
    plm_text_puts(text, "<td>");
    plm_text_put_html(text, cells[i] != NULL ? cells[i] : "");
    plm_text_puts(text, "</td>");
  }
}
