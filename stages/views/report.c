/* The page of a report: its frame, the summary and the machines. */
#include "stages/views/report.h"

#include <stdio.h>

enum { CELL_SIZE = 256 };

/* ---- machines ------------------------------------------------------------------------------- */

static void put_machine_row(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                            const char *heading,
                            void (*write)(const struct plm_report_machine *machine,
                                          char cell[CELL_SIZE]))
{
  char cells[PLM_REPORT_RUNS][CELL_SIZE];
  const char *texts[PLM_REPORT_RUNS];
  for (size_t i = 0; i < count; i++) {
    cells[i][0] = '\0';
    if (runs[i].machine.known) write(&runs[i].machine, cells[i]);
    if (cells[i][0] == '\0') snprintf(cells[i], CELL_SIZE, "\xE2\x80\x93");
    texts[i] = cells[i];
  }
  plm_text_puts(text, "<tr>");
  plm_report_row(text, heading, texts, count);
  plm_text_puts(text, "</tr>\n");
}

static void report_processor(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  snprintf(cell, CELL_SIZE, "%s", machine->processor);
}

static void device(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  snprintf(cell, CELL_SIZE, "%s%s%s", machine->device, machine->level[0] != '\0' ? ", " : "",
           machine->level);
}

static void precision(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  snprintf(cell, CELL_SIZE, "%s", machine->precision);
}

static void threads(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  if (machine->threads == 0) return;
  snprintf(cell, CELL_SIZE, "%u", machine->threads);
  if (machine->ranks > 1)
    snprintf(cell, CELL_SIZE, "%u in each of %u ranks", machine->threads, machine->ranks);
}

static void products(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  if (machine->product_flops > 0)
    snprintf(cell, CELL_SIZE, "%s%s%.4g GFLOP/s", machine->products,
             machine->products[0] != '\0' ? "; " : "", 1e-9 * machine->product_flops);
  else
    snprintf(cell, CELL_SIZE, "%s", machine->products);
}

static void version(const struct plm_report_machine *machine, char cell[CELL_SIZE])
{
  snprintf(cell, CELL_SIZE, "%s%s%s", machine->version, machine->build[0] != '\0' ? ", build " : "",
           machine->build);
}

static void put_machines(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  put_machine_row(text, runs, count, "processor", report_processor);
  put_machine_row(text, runs, count, "device", device);
  put_machine_row(text, runs, count, "precision", precision);
  put_machine_row(text, runs, count, "threads", threads);
  put_machine_row(text, runs, count, "matrix products", products);
  put_machine_row(text, runs, count, "plm-pipeline", version);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void put_names(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    if (i > 0) plm_text_puts(text, ", ");
    plm_text_put_html(text, runs[i].name);
  }
}

/* The policy lets a browser load nothing at all, whatever the page says. */
static void report_put_head(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  plm_text_puts(text, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<title>");
  put_names(text, runs, count);
  plm_text_puts(text, "</title>\n<style>\n");
  plm_text_puts(text, plm_report_css);
  plm_text_puts(text, "</style>\n</head>\n<body>\n<h1>");
  put_names(text, runs, count);
  plm_text_puts(text, "</h1>\n");
}

/* The name of run i in its color, within tags. */
static void put_run(struct plm_text *text, const struct plm_report_run *runs, size_t i,
                    const char *begin, const char *end)
{
  plm_text_puts(text, begin);
  plm_text_printf(text, "<span class=\"swatch s%zu\"></span>", i);
  plm_text_put_html(text, runs[i].name);
  plm_text_puts(text, end);
}

/* A table with a column for each run, whose name is also the legend of the charts. */
static void put_table_head(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  plm_text_puts(text, "<div class=\"wide\"><table>\n<thead><tr><th></th>");
  for (size_t i = 0; i < count; i++) put_run(text, runs, i, "<th>", "</th>");
  plm_text_puts(text, "</tr></thead>\n<tbody>\n");
}

static void put_run_legend(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  if (count < 2) return;
  plm_text_puts(text, "<p class=\"runs\">");
  for (size_t i = 0; i < count; i++) put_run(text, runs, i, "<span>", "</span> ");
  plm_text_puts(text, "</p>\n");
}

void plm_report_page(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                     const char *made)
{
  PLM_ASSERT(count >= 1 && count <= PLM_REPORT_RUNS);
  report_put_head(text, runs, count);
  put_table_head(text, runs, count);
  plm_report_summary(text, runs, count);
  plm_text_puts(text, "</tbody></table></div>\n<h2>Charts</h2>\n");
  put_run_legend(text, runs, count);
  plm_report_charts(text, runs, count);
  plm_text_puts(text,
                "<p class=\"note\">A line of many steps shows their mean, and the band around "
                "it their range. The values are shown under the pointer.</p>\n");
  plm_report_corpora(text, runs, count);
  plm_report_changes(text, runs, count);
  plm_report_settings(text, runs, count);
  plm_text_puts(text, "<h2>Machine</h2>\n");
  put_table_head(text, runs, count);
  put_machines(text, runs, count);
  plm_text_puts(text, "</tbody></table></div>\n<footer>plm-pipeline " PLM_VERSION " report, ");
  plm_text_put_html(text, made);
  plm_text_puts(text, "</footer>\n</body>\n</html>\n");
}
