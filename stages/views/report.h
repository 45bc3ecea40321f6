/* The page that `report` writes: one HTML file that needs nothing else and requests nothing. */
#ifndef PLM_STAGES_VIEWS_REPORT_H
#define PLM_STAGES_VIEWS_REPORT_H

#include "common/base/text/text.h"
#include "stages/views/chart.h"
#include "stages/views/report_facts.h"

enum { PLM_REPORT_RUNS = PLM_CHART_COLORS }; /* more could not be told apart by color */

/* Appends the whole page about runs (count), of which there are 1 to PLM_REPORT_RUNS. made: when,
 * for the foot of the page. */
void plm_report_page(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                     const char *made);

/* The parts of the page, in separate files. */
void plm_report_summary(struct plm_text *text, const struct plm_report_run *runs, size_t count);
void plm_report_charts(struct plm_text *text, const struct plm_report_run *runs, size_t count);
void plm_report_corpora(struct plm_text *text, const struct plm_report_run *runs, size_t count);
void plm_report_changes(struct plm_text *text, const struct plm_report_run *runs, size_t count);
void plm_report_settings(struct plm_text *text, const struct plm_report_run *runs, size_t count);

/* Appends a row of a table: a heading and a cell for each run, which may be NULL or "". */
void plm_report_row(struct plm_text *text, const char *heading, const char *const *cells,
                    size_t count);

extern const char plm_report_css[]; /* report.css */

#endif
