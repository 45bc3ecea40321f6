/* The summary of a report: a few figures of each run, computed from its metrics. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/model.h"
#include "stages/views/median.h"
#include "stages/views/report.h"
#include "stages/views/report_measures.h"

enum { CELL_SIZE = 256 };

/* 1234567 as "1,234,567". */
static void with_commas(double value, char cell[CELL_SIZE])
{
  char digits[64];
  const int length = snprintf(digits, sizeof digits, "%.0f", value);
  size_t used = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-') cell[used++] = ',';
    cell[used++] = digits[i];
  }
  cell[used] = '\0';
}

static double mean_of(const struct plm_curve *curve)
{
  double sum = 0;
  if (curve == NULL) return NAN;
  for (size_t i = 0; i < curve->count; i++) sum += curve->y[i];
  return sum / (double)curve->count;
}

static double sum_of(const struct plm_curve *curve)
{
  return curve != NULL ? mean_of(curve) * (double)curve->count : NAN;
}

static double last_of(const struct plm_curve *curve)
{
  return curve != NULL ? curve->y[curve->count - 1] : NAN;
}

/* Not a mean: the first step and the steps after a restart are slow. */
static double median_of(const struct plm_curve *curve)
{
  if (curve == NULL) return NAN;
  double *copy = plm_alloc(curve->count * sizeof *copy);
  memcpy(copy, curve->y, curve->count * sizeof *copy);
  const double median = plm_median(copy, curve->count);
  free(copy);
  return median;
}

static void steps(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const struct plm_curve *loss = plm_report_curve(run, PLM_REPORT_TRAINER_loss);
  char done[CELL_SIZE], all[CELL_SIZE];
  with_commas(loss != NULL ? loss->x[loss->count - 1] : 0, done);
  with_commas((double)run->config.trainer.steps, all);
  snprintf(cell, CELL_SIZE, "%.100s of %.100s", done, all);
}

static void state(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  snprintf(cell, CELL_SIZE, "%s", run->state);
}

static void tokens(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = last_of(plm_report_curve(run, PLM_REPORT_TRAINER_tokens));
  if (isfinite(value)) with_commas(value, cell);
}

static void epochs(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = last_of(plm_report_curve(run, PLM_REPORT_TRAINER_epoch));
  if (isfinite(value)) snprintf(cell, CELL_SIZE, "%.3g", value);
}

static void parameters(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  struct plm_parameter *table = NULL;
  size_t count, elements, sum = 0;
  if (plm_model_parameters(&run->config.model, &table, &count, &elements, NULL) != PLM_OK) return;
  for (size_t i = 0; i < count; i++) sum += table[i].count;
  free(table);
  with_commas((double)sum, cell);
}

static void training_loss(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = last_of(plm_report_curve(run, PLM_REPORT_TRAINER_loss));
  if (isfinite(value)) snprintf(cell, CELL_SIZE, "%.4f", value);
}

/* The first split that the evaluator reported is the first of evaluator.splits. */
static void validation_loss(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const struct plm_curves *curves = &run->evaluator[PLM_REPORT_EVALUATOR_loss];
  if (curves->count == 0 || curves->list[0].count == 0) return;
  const struct plm_curve *curve = &curves->list[0];
  size_t best = 0;
  for (size_t i = 1; i < curve->count; i++)
    if (curve->y[i] < curve->y[best]) best = i;
  snprintf(cell, CELL_SIZE, "%.4f (%s, step %.0f)", curve->y[best], curve->split, curve->x[best]);
}

static void speed(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = median_of(plm_report_curve(run, PLM_REPORT_TRAINER_tokens_per_second));
  if (isfinite(value)) with_commas(value, cell);
}

static void utilisation(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = median_of(plm_report_curve(run, PLM_REPORT_TRAINER_mfu));
  if (isfinite(value)) snprintf(cell, CELL_SIZE, "%.1f %%", 100 * value);
}

static void padding(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double value = mean_of(plm_report_curve(run, PLM_REPORT_TRAINER_padding_fraction));
  if (isfinite(value)) snprintf(cell, CELL_SIZE, "%.2f %%", 100 * value);
}

static void stalls(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double steps = sum_of(plm_report_curve(run, PLM_REPORT_TRAINER_step_ms)),
               data = sum_of(plm_report_curve(run, PLM_REPORT_TRAINER_data_wait_ms)),
               save = sum_of(plm_report_curve(run, PLM_REPORT_TRAINER_checkpoint_ms));
  const double all = steps + save; /* a step does not contain what a checkpoint took */
  if (isfinite(data) && isfinite(save) && steps > 0)
    snprintf(cell, CELL_SIZE, "%.2f %% for data, %.2f %% for checkpoints", 100 * data / all,
             100 * save / all);
}

static void duration(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double ms = sum_of(plm_report_curve(run, PLM_REPORT_TRAINER_step_ms));
  if (!isfinite(ms)) return;
  const long s = lround(1e-3 * ms);
  if (s < 60)
    snprintf(cell, CELL_SIZE, "%ld s", s);
  else if (s < 3600)
    snprintf(cell, CELL_SIZE, "%ld min %ld s", s / 60, s % 60);
  else
    snprintf(cell, CELL_SIZE, "%ld h %ld min", s / 3600, s / 60 % 60);
}

static void memory(const struct plm_report_run *run, char cell[CELL_SIZE])
{
  const double bytes = last_of(plm_report_curve(run, PLM_REPORT_TRAINER_memory_bytes));
  if (bytes >= 1e10)
    snprintf(cell, CELL_SIZE, "%.1f GB", 1e-9 * bytes);
  else if (isfinite(bytes))
    snprintf(cell, CELL_SIZE, "%.0f MB", 1e-6 * bytes);
}

static void put_row(struct plm_text *text, const char *heading, const char (*cells)[CELL_SIZE],
                    size_t count)
{
  const char *texts[PLM_REPORT_RUNS];
  for (size_t i = 0; i < count; i++)
    texts[i] = cells[i][0] != '\0' ? cells[i] : "\xE2\x80\x93"; /* a dash: not known */
  plm_text_puts(text, "<tr>");
  plm_report_row(text, heading, texts, count);
  plm_text_puts(text, "</tr>\n");
}

/* The measures that the objectives of the runs have. */
static void put_measures(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  for (size_t row = 0; row < PLM_MEASURES; row++) {
    const struct plm_report_measure *measure = &plm_report_measures[row];
    char cells[PLM_REPORT_RUNS][CELL_SIZE] = {{0}};
    if (!plm_report_measure_in_summary(runs, count, measure)) continue;
    for (size_t i = 0; i < count; i++) {
      const double value = plm_report_measure_last(&runs[i], measure);
      if (!isfinite(value)) continue;
      if (measure->share)
        snprintf(cells[i], CELL_SIZE, "%.1f %%", 100 * value);
      else
        snprintf(cells[i], CELL_SIZE, "%.3f", value);
    }
    put_row(text, measure->row, cells, count);
  }
}

void plm_report_summary(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  static const struct {
    const char *heading;
    void (*write)(const struct plm_report_run *run, char cell[CELL_SIZE]);
  } rows[] = {
      {"state", state},
      {"steps", steps},
      {"parameters", parameters},
      {"tokens, without padding", tokens},
      {"epochs", epochs},
      {"time in steps", duration},
      {"loss of the last step", training_loss},
      {"lowest validation loss", validation_loss},
      {"tokens/s (median)", speed},
      {"model FLOPs utilisation (median)", utilisation},
      {"padding", padding},
      {"time spent waiting", stalls},
      {"memory of the trainer", memory},
  };
  for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
    char cells[PLM_REPORT_RUNS][CELL_SIZE] = {{0}};
    for (size_t i = 0; i < count; i++) rows[row].write(&runs[i], cells[i]);
    put_row(text, rows[row].heading, cells, count);
    if (rows[row].write == validation_loss) put_measures(text, runs, count);
  }
}
