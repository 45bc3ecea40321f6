/* The charts of a report: which metrics, of which stage, on which axes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "stages/views/report.h"
#include "stages/views/report_measures.h"

enum { MAX_LINES = PLM_REPORT_RUNS * PLM_CHART_DASHES, LABEL_SIZE = 160 };
enum { MAX_MARKS = 64, MARK_LABEL_SIZE = 48, MARK_TITLE_SIZE = 160 + PLM_MARK_SIZE };

/* The marks of all runs, which every chart shows. Of several at one step, one is drawn. */
struct marks {
  struct plm_chart_mark list[MAX_MARKS];
  char labels[MAX_MARKS][MARK_LABEL_SIZE], titles[MAX_MARKS][MARK_TITLE_SIZE];
  size_t count;
};

/* The lines of one chart while they are collected. Those of one run have its color; what they show
 * (a split, a group of parameters) is told by the dash. In a chart of the sources of one run, color
 * and dash tell the sources apart. */
struct collection {
  struct plm_chart_line lines[MAX_LINES];
  char labels[MAX_LINES][LABEL_SIZE];
  size_t count;
  char dashes[PLM_CHART_DASHES][32]; /* what each dash means; "" if it is not used */
  bool apart;                        /* each line has a color and dash of its own */
  double range[2];
  const char *axis; /* NULL: steps */
  struct marks marks;
};

static int by_step(const void *a, const void *b)
{
  const double x = ((const struct plm_chart_mark *)a)->x, y = ((const struct plm_chart_mark *)b)->x;
  return (x > y) - (x < y);
}

static void add_mark(struct marks *marks, const struct plm_report_run *run, unsigned color,
                     const struct plm_report_mark *mark)
{
  struct plm_chart_mark *last = marks->count > 0 ? &marks->list[marks->count - 1] : NULL;
  if (last != NULL && last->color == color &&
      last->x == (double)mark->step) { /* a further change */
    char *title = marks->titles[marks->count - 1];
    const size_t used = strlen(title);
    snprintf(title + used, MARK_TITLE_SIZE - used, "; %s", mark->text);
    char *label = marks->labels[marks->count - 1];
    if (strstr(label, " \xE2\x80\xA6") == NULL && strlen(label) + 5 < MARK_LABEL_SIZE)
      strcat(label, " \xE2\x80\xA6");
    return;
  }
  if (marks->count == MAX_MARKS) return;
  char *label = marks->labels[marks->count], *title = marks->titles[marks->count];
  plm_mark_label(mark, label, MARK_LABEL_SIZE);
  snprintf(title, MARK_TITLE_SIZE, "%.100s, after step %llu: %s", run->name,
           (unsigned long long)mark->step, mark->text[0] != '\0' ? mark->text : "resumed");
  marks->list[marks->count++] = (struct plm_chart_mark){
      .x = (double)mark->step, .label = label, .title = title, .color = color};
}

static void find_marks(const struct plm_report_run *runs, size_t count, struct marks *marks)
{
  marks->count = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t m = 0; m < runs[i].marks.count; m++)
      add_mark(marks, &runs[i], (unsigned)i, &runs[i].marks.list[m]);
  qsort(marks->list, marks->count, sizeof marks->list[0], by_step);
}

static unsigned dash_of(struct collection *to, const char *meaning)
{
  unsigned dash = 0;
  while (dash < PLM_CHART_DASHES - 1 && to->dashes[dash][0] != '\0' &&
         strcmp(to->dashes[dash], meaning) != 0)
    dash++;
  if (to->dashes[dash][0] == '\0')
    snprintf(to->dashes[dash], sizeof to->dashes[dash], "%s", meaning);
  return dash;
}

static void add_line(struct collection *to, const char *run, size_t color,
                     const struct plm_curve *curve, const char *meaning)
{
  if (curve == NULL || to->count == MAX_LINES) return;
  char *label = to->labels[to->count];
  snprintf(label, LABEL_SIZE, "%.100s%s%.32s", run, meaning[0] != '\0' ? ", " : "", meaning);
  to->lines[to->count++] = (struct plm_chart_line){
      .label = label,
      .x = curve->x,
      .y = curve->y,
      .count = curve->count,
      .color = (unsigned)color,
      .dash = meaning[0] != '\0' ? dash_of(to, meaning) : 0,
  };
}

/* A stroke of a class, and what it means. */
static void report_charts_put_key(struct plm_text *text, const char *class, const char *meaning)
{
  plm_text_printf(text,
                  "<span><svg class=\"key\" viewBox=\"0 0 34 8\"><path class=\"%s\" "
                  "d=\"M0 4H34\"/></svg>",
                  class);
  plm_text_put_html(text, meaning);
  plm_text_puts(text, "</span> ");
}

static void put_legend(struct plm_text *text, const struct collection *lines, const char *level)
{
  char class[32];
  if (lines->dashes[1][0] == '\0' && level == NULL && !lines->apart) return;
  plm_text_puts(text, "<p class=\"legend\">");
  for (unsigned dash = 0; dash < PLM_CHART_DASHES && lines->dashes[dash][0] != '\0'; dash++) {
    snprintf(class, sizeof class, "line d%u", dash);
    report_charts_put_key(text, class, lines->dashes[dash]);
  }
  for (size_t i = 0; lines->apart && i < lines->count; i++) {
    snprintf(class, sizeof class, "line c%u d%u", lines->lines[i].color, lines->lines[i].dash);
    report_charts_put_key(text, class, lines->labels[i]);
  }
  if (level != NULL) report_charts_put_key(text, "level", level);
  plm_text_puts(text, "</p>\n");
}

/* How the values of a chart are shown. */
struct look {
  const char *title, *note, *level_label;
  double scale, level, value_max;
  bool from_zero;
};

static void put_chart(struct plm_text *text, const struct look *look,
                      const struct collection *lines)
{
  const bool level = look->level_label != NULL && isfinite(look->level);
  const struct plm_chart chart = {
      .title = look->title,
      .lines = lines->lines,
      .count = lines->count,
      .marks = lines->marks.list,
      .mark_count = lines->marks.count,
      .scale = look->scale,
      .level = level ? look->level : NAN,
      .range = {lines->range[0], lines->range[1]},
      .axis = lines->axis,
      .from_zero = look->from_zero,
      .value_max = look->value_max != 0 ? look->value_max : INFINITY,
  };
  plm_text_puts(text, "<figure>\n<figcaption><b>");
  plm_text_put_html(text, look->title);
  plm_text_printf(text, "</b> <span>%s</span></figcaption>\n", look->note);
  put_legend(text, lines, level ? look->level_label : NULL);
  plm_chart_draw(text, &chart);
  plm_text_puts(text, "</figure>\n");
}

/* A chart of one metric of the trainer, with one line for each run. */
static void trainer_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                          enum plm_report_trainer_metric metric, const struct look *look,
                          struct collection *lines)
{
  lines->count = 0;
  memset(lines->dashes, 0, sizeof lines->dashes);
  for (size_t i = 0; i < count; i++)
    add_line(lines, runs[i].name, i, plm_report_curve(&runs[i], metric), "");
  put_chart(text, look, lines);
}

/* A chart of one metric of the evaluator, with one line for each run and split. */
static void evaluator_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                            enum plm_report_evaluator_metric metric, struct look look,
                            struct collection *lines)
{
  lines->count = 0;
  memset(lines->dashes, 0, sizeof lines->dashes);
  look.level = NAN;
  for (size_t i = 0; i < count; i++) {
    const struct plm_curves *curves = &runs[i].evaluator[metric];
    for (size_t c = 0; c < curves->count; c++)
      add_line(lines, runs[i].name, i, &curves->list[c], curves->list[c].split);
    if (isfinite(curves->baseline)) look.level = curves->baseline;
  }
  put_chart(text, &look, lines);
}

/* A chart of each measure that a run has, or one of its tasks. */
static void measure_charts(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                           struct collection *lines)
{
  for (size_t i = 0; i < PLM_MEASURES; i++) {
    const struct plm_report_measure *measure = &plm_report_measures[i];
    if (!plm_report_measure_in_charts(runs, count, measure)) continue;
    const struct look look = {.title = measure->title,
                              .note = plm_report_measure_note(runs, count, measure),
                              .scale = measure->share ? 100 : 1,
                              .from_zero = measure->share,
                              .value_max = measure->share ? 100 : 0};
    evaluator_chart(text, runs, count, measure->metric, look, lines);
  }
}

static bool same_curve(const struct plm_curve *a, const struct plm_curve *b)
{
  return a->count == b->count && memcmp(a->y, b->y, a->count * sizeof *a->y) == 0;
}

/* The learning rates of the groups of parameters. A group whose rate is that of another one in
 * every run is not drawn again. */
static void rate_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                       const struct look *look, struct collection *lines)
{
  static const struct {
    enum plm_report_trainer_metric metric;
    const char *name;
  } groups[] = {{PLM_REPORT_TRAINER_lr_hidden, "hidden matrices"},
                {PLM_REPORT_TRAINER_lr_embed, "embeddings"},
                {PLM_REPORT_TRAINER_lr_head, "head"},
                {PLM_REPORT_TRAINER_lr_scalar, "scalars"}};
  enum { GROUPS = sizeof groups / sizeof groups[0] };
  lines->count = 0;
  memset(lines->dashes, 0, sizeof lines->dashes);
  for (size_t g = 0; g < GROUPS; g++) {
    bool drawn = false;
    for (size_t before = 0; before < g && !drawn; before++) {
      drawn = true;
      for (size_t i = 0; i < count && drawn; i++) {
        const struct plm_curve *a = plm_report_curve(&runs[i], groups[g].metric),
                               *b = plm_report_curve(&runs[i], groups[before].metric);
        drawn = (a == NULL && b == NULL) || (a != NULL && b != NULL && same_curve(a, b));
      }
    }
    for (size_t i = 0; i < count && !drawn; i++)
      add_line(lines, runs[i].name, i, plm_report_curve(&runs[i], groups[g].metric),
               groups[g].name);
  }
  put_chart(text, look, lines);
}

/* The value of a curve at exactly this step; 0 if it has none. *at only moves forward. */
static double value_at(const struct plm_curve *curve, double step, size_t *at)
{
  if (curve == NULL) return 0;
  while (*at < curve->count && curve->x[*at] < step) ++*at;
  return *at < curve->count && curve->x[*at] == step ? curve->y[*at] : 0;
}

/* The part of the time that a wait takes, at the steps whose time is known. The time is that of the
 * step and of the checkpoint after the step before, which step_ms does not contain. */
static void report_charts_share(const struct plm_curve *wait, const struct plm_curve *step,
                                const struct plm_curve *save, struct plm_curve *share)
{
  *share = (struct plm_curve){0};
  if (wait == NULL) return;
  share->x = plm_alloc_zeroed(wait->count, sizeof *share->x);
  share->y = plm_alloc_zeroed(wait->count, sizeof *share->y);
  for (size_t i = 0, j = 0, k = 0; i < wait->count; i++) {
    const double step_ms = value_at(step, wait->x[i], &j);
    if (!(step_ms > 0)) continue;
    share->x[share->count] = wait->x[i];
    share->y[share->count++] = wait->y[i] / (step_ms + value_at(save, wait->x[i], &k));
  }
}

static void stall_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                        const struct look *look, struct collection *lines)
{
  struct plm_curve shares[PLM_REPORT_RUNS][2] = {0};
  lines->count = 0;
  memset(lines->dashes, 0, sizeof lines->dashes);
  for (size_t i = 0; i < count; i++) {
    const struct plm_curve *time = plm_report_curve(&runs[i], PLM_REPORT_TRAINER_step_ms);
    const struct plm_curve *data = plm_report_curve(&runs[i], PLM_REPORT_TRAINER_data_wait_ms);
    const struct plm_curve *save = plm_report_curve(&runs[i], PLM_REPORT_TRAINER_checkpoint_ms);
    report_charts_share(data, time, save, &shares[i][0]);
    report_charts_share(save, time, save, &shares[i][1]);
    add_line(lines, runs[i].name, i, &shares[i][0], "waiting for data");
    add_line(lines, runs[i].name, i, &shares[i][1], "waiting for checkpoints");
  }
  put_chart(text, look, lines);
  for (size_t i = 0; i < count; i++) {
    for (size_t s = 0; s < 2; s++) {
      free(shares[i][s].x);
      free(shares[i][s].y);
    }
  }
}

/* A chart that only runs with metrics.norms have. */
static void norm_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                       enum plm_report_trainer_metric metric, const struct look *look,
                       struct collection *lines)
{
  bool any = false;
  for (size_t i = 0; i < count; i++) any |= plm_report_curve(&runs[i], metric) != NULL;
  if (any) trainer_chart(text, runs, count, metric, look, lines);
}

/* A chart for each run on several corpora, with one line for each of them. */
static void source_charts(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                          enum plm_report_trainer_metric metric, struct look look,
                          struct collection *lines)
{
  const char *what = look.title;
  char title[LABEL_SIZE];
  memset(lines->dashes, 0, sizeof lines->dashes);
  lines->apart = true;
  for (size_t i = 0; i < count; i++) {
    const struct plm_curves *curves = &runs[i].trainer[metric];
    lines->count = 0;
    for (size_t c = 0; c < curves->count && c < MAX_LINES; c++) {
      add_line(lines, curves->list[c].split, c % PLM_CHART_COLORS, &curves->list[c], "");
      lines->lines[c].dash = (unsigned)(c / PLM_CHART_COLORS);
    }
    if (lines->count == 0) continue;
    snprintf(title, sizeof title, "%s, %.100s", what, runs[i].name);
    look.title = count > 1 ? title : what;
    put_chart(text, &look, lines);
  }
  lines->apart = false;
}

/* ---- the losses over tokens and time ----------------------------------------------------------
 */

/* The value of a curve at a step, or before it: 0 before the first one. */
static double at_step(const struct plm_curve *curve, double step)
{
  size_t low = 0, high = curve->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (curve->x[middle] <= step)
      low = middle + 1;
    else
      high = middle;
  }
  return low > 0 ? curve->y[low - 1] : 0;
}

/* What was spent until each step: of tokens, the metric itself (in millions); of time, the sum of
 * the steps (in hours). */
static void spend(const struct plm_report_run *run, bool time, struct plm_curve *spent)
{
  const struct plm_curve *from =
      plm_report_curve(run, time ? PLM_REPORT_TRAINER_step_ms : PLM_REPORT_TRAINER_tokens);
  double sum = 0;
  if (from == NULL) return;
  spent->x = plm_alloc_zeroed(from->count, sizeof *spent->x);
  spent->y = plm_alloc_zeroed(from->count, sizeof *spent->y);
  for (size_t i = 0; i < from->count; i++) {
    sum += from->y[i];
    spent->x[i] = from->x[i];
    spent->y[i] = time ? sum / 3.6e6 : 1e-6 * from->y[i];
  }
  spent->count = from->count;
}

/* The curve over what was spent; x is the caller's to free. */
static struct plm_curve over(const struct plm_curve *curve, const struct plm_curve *spent)
{
  struct plm_curve mapped = {.y = curve->y, .x = plm_alloc_zeroed(curve->count, sizeof *mapped.x)};
  for (size_t i = 0; i < curve->count; i++) mapped.x[i] = at_step(spent, curve->x[i]);
  if (spent->count > 0) mapped.count = curve->count;
  return mapped;
}

static void spent_chart(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                        const struct plm_curve *spent, bool held_out, const struct look *look,
                        struct collection *lines)
{
  struct plm_curve mapped[PLM_REPORT_RUNS] = {0};
  lines->count = 0;
  memset(lines->dashes, 0, sizeof lines->dashes);
  for (size_t i = 0; i < count; i++) {
    const struct plm_curves *valid = &runs[i].evaluator[PLM_REPORT_EVALUATOR_loss];
    const struct plm_curve *from = !held_out ? plm_report_curve(&runs[i], PLM_REPORT_TRAINER_loss)
                                   : valid->count > 0 ? &valid->list[0]
                                                      : NULL;
    if (from == NULL) continue;
    mapped[i] = over(from, &spent[i]);
    if (mapped[i].count > 0)
      add_line(lines, runs[i].name, i, &mapped[i], held_out ? from->split : "");
  }
  put_chart(text, look, lines);
  for (size_t i = 0; i < count; i++) free(mapped[i].x);
}

/* Both losses over tokens, or over time, in a part that the reader opens. */
static void put_spent(struct plm_text *text, const struct plm_report_run *runs, size_t count,
                      bool time, struct collection *lines)
{
  const struct look training = {.title = "Training loss",
                                .note = plm_report_loss_note(runs, count, "nats"),
                                .scale = 1},
                    held_out = {
                        .title = "Validation loss", .note = "of the first split", .scale = 1};
  struct plm_curve spent[PLM_REPORT_RUNS] = {0};
  lines->marks.count = 0; /* they are steps */
  lines->range[0] = lines->range[1] = 0;
  lines->axis = time ? "hours of steps" : "million tokens";
  for (size_t i = 0; i < count; i++) {
    spend(&runs[i], time, &spent[i]);
    if (spent[i].count > 0) lines->range[1] = fmax(lines->range[1], spent[i].y[spent[i].count - 1]);
  }
  plm_text_printf(text, "<details><summary>Losses over %s</summary>\n<section class=\"charts\">\n",
                  time ? "time" : "tokens");
  spent_chart(text, runs, count, spent, false, &training, lines);
  spent_chart(text, runs, count, spent, true, &held_out, lines);
  plm_text_puts(text, "</section>\n</details>\n");
  for (size_t i = 0; i < count; i++) {
    free(spent[i].x);
    free(spent[i].y);
  }
}

/* The steps of all runs, so that the charts have the same axis. */
static void find_steps(const struct plm_report_run *runs, size_t count, double range[2])
{
  range[0] = 0;
  range[1] = 1;
  for (size_t i = 0; i < count; i++) {
    const struct plm_curve *loss = plm_report_curve(&runs[i], PLM_REPORT_TRAINER_loss);
    const struct plm_curves *valid = &runs[i].evaluator[PLM_REPORT_EVALUATOR_loss];
    if (loss != NULL) range[1] = fmax(range[1], loss->x[loss->count - 1]);
    for (size_t c = 0; c < valid->count; c++) {
      const struct plm_curve *curve = &valid->list[c];
      if (curve->count > 0) range[1] = fmax(range[1], curve->x[curve->count - 1]);
    }
  }
}

void plm_report_charts(struct plm_text *text, const struct plm_report_run *runs, size_t count)
{
  static const struct look
      training = {.title = "Training accuracy",
                  .note = "% of the predicted tokens or labels of a step",
                  .scale = 100,
                  .from_zero = true,
                  .value_max = 100},
      by_source = {.title = "Loss by source", .note = "training", .scale = 1},
      rate = {.title = "Learning rate", .note = "", .scale = 1, .from_zero = true},
      speed = {.title = "Throughput",
               .note = "tokens/s, without padding",
               .scale = 1,
               .from_zero = true},
      padding = {.title = "Padding",
                 .note = "% of the tokens of a step",
                 .scale = 100,
                 .from_zero = true,
                 .value_max = 100},
      sources = {.title = "Tokens by source",
                 .note = "tokens of a step, without padding",
                 .scale = 1,
                 .from_zero = true},
      stalls = {.title = "Stalls",
                .note = "% of the time of a step",
                .scale = 100,
                .from_zero = true,
                .value_max = 100},
      gradient = {.title = "Gradient norm",
                  .note = "before clipping",
                  .scale = 1,
                  .from_zero = true},
      weights = {.title = "Weight norm", .note = "over all layers", .scale = 1, .from_zero = true},
      updates = {.title = "Update norm", .note = "over all layers", .scale = 1, .from_zero = true};
  const struct look loss = {.title = "Training loss",
                            .note = plm_report_loss_note(runs, count, "nats"),
                            .scale = 1},
                    held_out = {.title = "Validation loss",
                                .note =
                                    plm_report_loss_note(runs, count, "nats for a masked residue"),
                                .level_label = "composition only",
                                .scale = 1};
  struct collection *lines = plm_alloc_zeroed(1, sizeof *lines);
  find_steps(runs, count, lines->range);
  find_marks(runs, count, &lines->marks);
  plm_text_puts(text, "<section class=\"charts\">\n");
  trainer_chart(text, runs, count, PLM_REPORT_TRAINER_loss, &loss, lines);
  evaluator_chart(text, runs, count, PLM_REPORT_EVALUATOR_loss, held_out, lines);
  measure_charts(text, runs, count, lines);
  if (plm_report_has_training_accuracy(runs, count))
    trainer_chart(text, runs, count, PLM_REPORT_TRAINER_accuracy, &training, lines);
  source_charts(text, runs, count, PLM_REPORT_TRAINER_loss_by_source, by_source, lines);
  rate_chart(text, runs, count, &rate, lines);
  trainer_chart(text, runs, count, PLM_REPORT_TRAINER_tokens_per_second, &speed, lines);
  trainer_chart(text, runs, count, PLM_REPORT_TRAINER_padding_fraction, &padding, lines);
  source_charts(text, runs, count, PLM_REPORT_TRAINER_tokens_by_source, sources, lines);
  stall_chart(text, runs, count, &stalls, lines);
  trainer_chart(text, runs, count, PLM_REPORT_TRAINER_grad_norm, &gradient, lines);
  norm_chart(text, runs, count, PLM_REPORT_TRAINER_weight_norms, &weights, lines);
  norm_chart(text, runs, count, PLM_REPORT_TRAINER_update_norms, &updates, lines);
  plm_text_puts(text, "</section>\n");
  put_spent(text, runs, count, false, lines);
  put_spent(text, runs, count, true, lines);
  free(lines);
}
