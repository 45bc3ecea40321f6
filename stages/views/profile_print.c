/* A profile as a table for people and as JSON. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"
#include "common/metrics/metrics.h"
#include "stages/views/profile_table.h"

enum { NAME_LEAST = 24, NAME_MOST = 60 };

/* Milliseconds and calls of a step of one rank. */
static double ms_of(const struct plm_profile_table *table, uint64_t ns)
{
  return 1e-6 * (double)ns / (double)table->steps;
}

static double calls_of(const struct plm_profile_table *table, const struct plm_profile_row *row)
{
  return (double)row->calls / (double)table->steps;
}

/* Per second, NAN if nothing is known. */
static double rate_of(double work, uint64_t ns)
{
  return work > 0 && ns > 0 ? work / (1e-9 * (double)ns) : NAN;
}

/* A number in a column, or a minus sign if it is not known. */
static void put_number(struct plm_text *text, int width, int digits, double value, const char *unit)
{
  char number[40];
  if (isnan(value))
    snprintf(number, sizeof number, "-");
  else
    snprintf(number, sizeof number, "%.*f%s", digits, value, unit);
  plm_text_printf(text, "  %*s", width, number);
}

static int name_width(const struct plm_profile_rows *rows, int width)
{
  for (size_t i = 0; i < rows->count; i++) {
    const int length = (int)strlen(rows->rows[i].name);
    if (length > width) width = length;
  }
  return width < NAME_MOST ? width : NAME_MOST;
}

static void put_calls(struct plm_text *text, double calls)
{
  put_number(text, 7, calls == floor(calls) || calls >= 100 ? 0 : 1, calls, "");
}

static void put_head(const struct plm_profile_table *table, struct plm_text *text)
{
  plm_text_printf(text, table->first_step == table->last_step ? "step %llu" : "steps %llu to %llu",
                  (unsigned long long)table->first_step, (unsigned long long)table->last_step);
  if (table->ranks > 1) plm_text_printf(text, " of %u ranks", table->ranks);
  plm_text_printf(text, " on %s", table->device[0] != '\0' ? table->device : "an unknown device");
  if (table->isa[0] != '\0') plm_text_printf(text, " (%s)", table->isa);
  if (table->precision[0] != '\0') plm_text_printf(text, ", %s", table->precision);
  if (table->threads > 0)
    plm_text_printf(text, ", %u thread%s", table->threads, table->threads == 1 ? "" : "s");
  plm_text_printf(text, ": %.2f ms a step\n", ms_of(table, table->ns));
  if (table->flops_limit > 0)
    plm_text_printf(text, "measured limits: %.1f GFLOP/s in a large product",
                    1e-9 * table->flops_limit);
  if (table->flops_limit > 0 && table->bytes_limit > 0)
    plm_text_printf(text, ", %.1f GB/s in a copy", 1e-9 * table->bytes_limit);
  if (table->flops_limit > 0) plm_text_puts(text, "\n");
  if (table->incomplete)
    plm_text_puts(text, "incomplete: there was no memory for some of the events\n");
}

static void put_row(const struct plm_profile_table *table, const struct plm_profile_row *row,
                    int width, struct plm_text *text)
{
  plm_text_printf(text, "%-*s", width, row->name);
  put_calls(text, calls_of(table, row));
  put_number(text, 9, 2, ms_of(table, row->ns), "");
  put_number(text, 7, 1, 100 * (double)row->ns / (double)table->ns, " %");
  put_number(text, 8, 1, 1e-9 * rate_of(row->flops, row->ns), "");
  put_number(text, 8, 1, 1e-9 * rate_of(row->bytes, row->ns), "");
  put_number(text, 8, 0, 100 * plm_profile_of_limit(table, row), " %");
  plm_text_puts(text, "\n");
}

void plm_profile_table_print(const struct plm_profile_table *table, struct plm_text *text)
{
  const int width = name_width(&table->beside, name_width(&table->in, NAME_LEAST));
  put_head(table, text);
  plm_text_printf(text, "\n%-*s  %7s  %9s  %7s  %8s  %8s  %8s\n", width, "in a step", "calls", "ms",
                  "share", "GFLOP/s", "GB/s", "of limit");
  for (size_t i = 0; i < table->in.count; i++) put_row(table, &table->in.rows[i], width, text);
  plm_text_printf(text, "%-*s", width, "all");
  put_number(text, 18, 2, ms_of(table, table->ns), "");
  put_number(text, 7, 1, 100, " %");
  plm_text_puts(text, "\n");
  if (table->beside.count == 0) return;
  plm_text_printf(text, "\n%-*s  %7s  %9s  %8s\n", width, "beside a step", "calls", "ms", "GB/s");
  for (size_t i = 0; i < table->beside.count; i++) {
    const struct plm_profile_row *row = &table->beside.rows[i];
    plm_text_printf(text, "%-*s", width, row->name);
    put_calls(text, calls_of(table, row));
    put_number(text, 9, 2, ms_of(table, row->ns), "");
    put_number(text, 8, 1, 1e-9 * rate_of(row->bytes, row->ns), "");
    plm_text_puts(text, "\n");
  }
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void add_rows(cJSON *object, const char *name, const struct plm_profile_table *table,
                     const struct plm_profile_rows *rows)
{
  cJSON *array = cJSON_AddArrayToObject(object, name);
  for (size_t i = 0; i < rows->count; i++) {
    const struct plm_profile_row *row = &rows->rows[i];
    cJSON *item = cJSON_CreateObject();
    plm_metrics_string(item, "name", row->name);
    plm_metrics_string(item, "kind", row->kind);
    plm_metrics_number(item, "calls", calls_of(table, row));
    plm_metrics_number(item, "ms", ms_of(table, row->ns));
    plm_metrics_number(item, "share", (double)row->ns / (double)table->ns);
    plm_metrics_number(item, "flops_per_second", rate_of(row->flops, row->ns));
    plm_metrics_number(item, "bytes_per_second", rate_of(row->bytes, row->ns));
    plm_metrics_number(item, "of_limit", plm_profile_of_limit(table, row));
    plm_json_append(array, item);
  }
}

void plm_profile_table_json(const struct plm_profile_table *table, struct plm_text *text)
{
  cJSON *object = cJSON_CreateObject();
  plm_metrics_integer(object, "first_step", table->first_step);
  plm_metrics_integer(object, "last_step", table->last_step);
  plm_metrics_integer(object, "ranks", table->ranks);
  plm_metrics_string(object, "device", table->device);
  plm_metrics_string(object, "precision", table->precision);
  plm_metrics_number(object, "step_ms", ms_of(table, table->ns));
  plm_metrics_number(object, "limit_flops_per_second",
                     table->flops_limit > 0 ? table->flops_limit : NAN);
  plm_metrics_number(object, "limit_bytes_per_second",
                     table->bytes_limit > 0 ? table->bytes_limit : NAN);
  add_rows(object, "in_a_step", table, &table->in);
  add_rows(object, "beside_a_step", table, &table->beside);
  char *line = plm_json_text(object, false);
  plm_text_puts(text, line);
  plm_text_puts(text, "\n");
  free(line);
  cJSON_Delete(object);
}
