/* The configuration in a report: what differs from the defaults or between the runs, then every
 * key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/config/settings.h"
#include "stages/views/report.h"

struct values {
  char *texts[PLM_REPORT_RUNS];
  char *usual; /* the default */
  bool differ; /* between the runs */
  bool unusual;
};

/* A list of corpora has a table of its own. */
static bool is_list(const struct plm_setting *setting, const struct plm_config *config)
{
  return setting->type == PLM_SETTING_CORPUS && config->source_count > 0;
}

static void find_values(const struct plm_setting *setting, const struct plm_report_run *runs,
                        size_t count, const struct plm_config *defaults, struct values *values)
{
  *values = (struct values){.usual = plm_setting_print(setting, defaults)};
  for (size_t i = 0; i < count; i++) {
    values->texts[i] = is_list(setting, &runs[i].config)
                           ? plm_strdup("the list above")
                           : plm_setting_print(setting, &runs[i].config);
    const char *text = values->texts[i];
    values->unusual |= strcmp(text, values->usual) != 0;
    values->differ |= strcmp(text, values->texts[0]) != 0;
  }
}

static void put_settings(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                         const struct plm_config *defaults, bool all)
{
  size_t rows;
  const struct plm_setting *table = plm_settings(&rows);
  for (size_t row = 0; row < rows; row++) {
    struct values values;
    find_values(&table[row], runs, count, defaults, &values);
    if (all || values.unusual) {
      plm_text_puts(text, values.differ ? "<tr class=\"differs\">" : "<tr>");
      plm_report_row(text, table[row].key, (const char *const *)values.texts, count);
      plm_text_puts(text, "<td class=\"default\">");
      plm_text_put_html(text, table[row].fallback);
      plm_text_puts(text, "</td></tr>\n");
    }
    for (size_t i = 0; i < count; i++) free(values.texts[i]);
    free(values.usual);
  }
}

static void report_settings_put_head(struct plm_text *text, const struct plm_report_run *runs,
                                     size_t count)
{
  plm_text_puts(text, "<div class=\"wide\"><table>\n<thead><tr><th>key</th>");
  for (size_t i = 0; i < count; i++) {
    plm_text_puts(text, "<th>");
    plm_text_put_html(text, runs[i].name);
    plm_text_puts(text, "</th>");
  }
  plm_text_puts(text, "<th>default</th></tr></thead>\n<tbody>\n");
}

static void put_source(struct plm_text *text, const char *run, const struct plm_config *config,
                       uint32_t k)
{
  const struct plm_config_source source = plm_config_source(config, k);
  char weight[64];
  snprintf(weight, sizeof weight, "%g", source.weight);
  if (source.final_weight >= 0)
    snprintf(weight, sizeof weight, "%g to %g in %llu steps", source.weight, source.final_weight,
             (unsigned long long)config->data.mixture_steps);
  const char *const cells[] = {source.path, weight,
                               plm_sampling_names[plm_config_source_plan(config, k).sampling]};
  plm_text_puts(text, "<tr>");
  plm_report_row(text, run, cells, 3);
  plm_text_puts(text, "</tr>\n");
}

/* The corpora of runs that train on a list of them. */
void plm_report_corpora(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  bool any = false;
  for (size_t i = 0; i < count; i++) any |= runs[i].config.source_count > 0;
  if (!any) return;
  plm_text_puts(text, "<h2>Corpora</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>run</th>"
                      "<th>corpus</th><th>weight</th><th>sampling</th></tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < plm_config_source_count(&runs[i].config); k++)
      put_source(text, runs[i].name, &runs[i].config, k);
  plm_text_puts(text, "</tbody></table></div>\n");
}

/* What the resumes of the runs changed; nothing if there was none. */
void plm_report_changes(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  bool any = false;
  for (size_t i = 0; i < count; i++) any |= runs[i].marks.count > 0;
  if (!any) return;
  plm_text_puts(text,
                "<h2>Resumes and changes</h2>\n<p>The settings below are the last ones; the "
                "charts mark these steps.</p>\n<div class=\"wide\"><table>\n<thead><tr>"
                "<th>after step</th><th>run</th><th>what changed</th></tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < count; i++)
    for (size_t m = 0; m < runs[i].marks.count; m++) {
      const struct plm_report_mark *mark = &runs[i].marks.list[m];
      char step[32];
      snprintf(step, sizeof step, "%llu", (unsigned long long)mark->step);
      const char *const cells[] = {runs[i].name,
                                   mark->text[0] != '\0' ? mark->text : "nothing: it was resumed"};
      plm_text_puts(text, "<tr>");
      plm_report_row(text, step, cells, 2);
      plm_text_puts(text, "</tr>\n");
    }
  plm_text_puts(text, "</tbody></table></div>\n");
}

void plm_report_settings(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  static const char nothing[] = "version: 1\n";
  struct plm_config defaults;
  PLM_ASSERT(plm_config_load_text(nothing, sizeof nothing - 1, &defaults, NULL) == PLM_OK);
  plm_text_puts(text,
                "<h2>Configuration</h2>\n<p>The keys of pipeline.yaml whose values are not the "
                "defaults.");
  if (count > 1) plm_text_puts(text, " Those that differ between the runs are marked.");
  plm_text_puts(text, "</p>\n");
  report_settings_put_head(text, runs, count);
  put_settings(text, runs, count, &defaults, false);
  plm_text_puts(text, "</tbody></table></div>\n<details><summary>All keys</summary>\n");
  report_settings_put_head(text, runs, count);
  put_settings(text, runs, count, &defaults, true);
  plm_text_puts(text, "</tbody></table></div>\n</details>\n");
  plm_config_deinit(&defaults);
}
