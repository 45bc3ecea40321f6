/* The page of `report` for runs whose metrics differ, compared with tests/stages/views/report/. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/config/settings.h"
#include "stages/views/report.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/must.h"

enum { MOST = 4 };

/* The steps of the trainer's and the evaluator's metrics, or the first of them. */
static const double trained[MOST] = {1, 2, 3, 5}, evaluated[MOST] = {0, 4, 6, 10};

static void add_curve(struct plm_curves *curves, const char *split, const double *x,
                      const double *y, size_t count)
{
  struct plm_curve *curve = &curves->list[curves->count++];
  snprintf(curve->split, sizeof curve->split, "%s", split);
  curve->count = curve->capacity = count;
  curve->x = must(malloc(count * sizeof *x));
  curve->y = must(malloc(count * sizeof *y));
  memcpy(curve->x, x, count * sizeof *x);
  memcpy(curve->y, y, count * sizeof *y);
}

static void train(struct plm_report_run *run, enum plm_report_trainer_metric metric, size_t count,
                  const double *y)
{
  add_curve(&run->trainer[metric], "", trained, y, count);
}

static void train_source(struct plm_report_run *run, enum plm_report_trainer_metric metric,
                         const char *source, size_t count, const double *y)
{
  add_curve(&run->trainer[metric], source, trained, y, count);
}

static void evaluate(struct plm_report_run *run, enum plm_report_evaluator_metric metric,
                     const char *split, size_t count, const double *y)
{
  add_curve(&run->evaluator[metric], split, evaluated, y, count);
}

static void begin_run(struct plm_report_run *run, const char *name, const char *state,
                      const char *yaml)
{
  struct plm_error error = {0};
  *run = (struct plm_report_run){.state = state};
  snprintf(run->folder, sizeof run->folder, "/runs/%s", name);
  run->name = run->folder + strlen("/runs/");
  for (size_t i = 0; i < PLM_REPORT_TRAINER_COUNT; i++) run->trainer[i].baseline = NAN;
  for (size_t i = 0; i < PLM_REPORT_EVALUATOR_COUNT; i++) run->evaluator[i].baseline = NAN;
  if (plm_config_load_text(yaml, strlen(yaml), &run->config, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* Everything is known. The rates of the head and of the scalars are those of the embeddings and of
 * the hidden matrices. The wait for data is not known at step 1, and the checkpoint before step 3
 * takes longer than that step. */
static void first_run(struct plm_report_run *run)
{
  begin_run(run, "first", "complete", "seed: 2\ntrainer: {steps: 1234567}\n");
  train(run, PLM_REPORT_TRAINER_loss, 4, (double[]){3.5, 3, 2.75, 2.5});
  train(run, PLM_REPORT_TRAINER_accuracy, 4, (double[]){0.1, 0.2, 0.3, 0.25});
  train(run, PLM_REPORT_TRAINER_lr_hidden, 4, (double[]){0.4, 0.5, 0.5, 0.35});
  train(run, PLM_REPORT_TRAINER_lr_embed, 4, (double[]){0.3, 0.35, 0.35, 0.3});
  train(run, PLM_REPORT_TRAINER_lr_head, 4, (double[]){0.3, 0.35, 0.35, 0.3});
  train(run, PLM_REPORT_TRAINER_lr_scalar, 4, (double[]){0.4, 0.5, 0.5, 0.35});
  train(run, PLM_REPORT_TRAINER_tokens, 4, (double[]){1000, 2000, 3000, 1234567});
  train(run, PLM_REPORT_TRAINER_epoch, 4, (double[]){0.5, 1, 1.5, 2.25});
  train(run, PLM_REPORT_TRAINER_tokens_per_second, 4, (double[]){3000, 4000, 2500, 3500});
  train(run, PLM_REPORT_TRAINER_padding_fraction, 4, (double[]){0.1, 0.2, 0.1, 0.2});
  train(run, PLM_REPORT_TRAINER_grad_norm, 4, (double[]){8, 7, 6, 5});
  train(run, PLM_REPORT_TRAINER_weight_norms, 4, (double[]){10, 11, 12, 14});
  train(run, PLM_REPORT_TRAINER_update_norms, 4, (double[]){5, 6, 7, 9});
  train(run, PLM_REPORT_TRAINER_step_ms, 4, (double[]){1000, 2000, 3000, 54000});
  train(run, PLM_REPORT_TRAINER_data_wait_ms, 4, (double[]){100, 1000, 0, 4900});
  run->trainer[PLM_REPORT_TRAINER_data_wait_ms].list[0].x[0] = 0;
  train(run, PLM_REPORT_TRAINER_checkpoint_ms, 4, (double[]){0, 0, 6000, 1500});
  train(run, PLM_REPORT_TRAINER_memory_bytes, 4, (double[]){1, 2, 3, 9.999e9});
  train(run, PLM_REPORT_TRAINER_mfu, 4, (double[]){0.1, 0.9, 0.4, 0.5});
  train_source(run, PLM_REPORT_TRAINER_loss_by_source, "uni<ref>", 4,
               (double[]){3.75, 3.25, 3, 2.75});
  train_source(run, PLM_REPORT_TRAINER_loss_by_source, "bfd", 3, (double[]){3, 2.5, 2.25});
  train_source(run, PLM_REPORT_TRAINER_tokens_by_source, "uni<ref>", 4,
               (double[]){1000, 900, 800, 600});
  train_source(run, PLM_REPORT_TRAINER_tokens_by_source, "bfd", 4, (double[]){500, 550, 600, 700});
  evaluate(run, PLM_REPORT_EVALUATOR_loss, "valid", 4, (double[]){3, 2.5, 2.25, 2.25});
  evaluate(run, PLM_REPORT_EVALUATOR_loss, "test", 3, (double[]){3.1, 2.6, 2.4});
  run->evaluator[PLM_REPORT_EVALUATOR_loss].baseline = 2.875;
  evaluate(run, PLM_REPORT_EVALUATOR_accuracy, "valid", 3, (double[]){0.1, 0.2, 0.375});
  evaluate(run, PLM_REPORT_EVALUATOR_mcc, "valid", 2, (double[]){0.1, 0.25});
  plm_marks_add_changes(&run->marks, 2,
                        "trainer.steps: 5 -> 9\ncorpus: source 1: added <b>\nseed: 1 -> 2\n");
  plm_marks_add_changes(&run->marks, 5, "trainer.batch_tokens: 512 -> 1024\n");
  run->marks.list[run->marks.count++] = (struct plm_report_mark){.step = 5000};
  run->machine = (struct plm_report_machine){.known = true,
                                             .processor = "A <Processor>",
                                             .device = "cuda",
                                             .level = "amx",
                                             .precision = "bf16",
                                             .products = "oneDNN",
                                             .version = "9.8.7",
                                             .build = "abc",
                                             .threads = 3,
                                             .ranks = 2,
                                             .product_flops = 2.5e11};
}

/* Scalars have another rate than hidden matrices, and evaluations are later than the last step. */
static void second_run(struct plm_report_run *run)
{
  begin_run(run, "second", "running", "seed: 3\n");
  train(run, PLM_REPORT_TRAINER_loss, 3, (double[]){4, 3.5, 3.25});
  train(run, PLM_REPORT_TRAINER_lr_hidden, 3, (double[]){0.25, 0.5, 0.5});
  train(run, PLM_REPORT_TRAINER_lr_embed, 3, (double[]){0.2, 0.2, 0.2});
  train(run, PLM_REPORT_TRAINER_lr_head, 3, (double[]){0.2, 0.2, 0.2});
  train(run, PLM_REPORT_TRAINER_lr_scalar, 3, (double[]){0.25, 0.5, 0.75});
  train(run, PLM_REPORT_TRAINER_step_ms, 3, (double[]){1000, 0, 3600000});
  train(run, PLM_REPORT_TRAINER_data_wait_ms, 2, (double[]){500, 10});
  train(run, PLM_REPORT_TRAINER_memory_bytes, 1, (double[]){1e10});
  evaluate(run, PLM_REPORT_EVALUATOR_loss, "valid", 3, (double[]){4.5, NAN, 2.5});
  evaluate(run, PLM_REPORT_EVALUATOR_loss, "refseq valid", 2, (double[]){3.5, 3.25});
  run->machine = (struct plm_report_machine){.known = true,
                                             .device = "cpu",
                                             .products = "cblas",
                                             .version = "9.8.8",
                                             .threads = 1,
                                             .ranks = 1};
}

static void empty_run(struct plm_report_run *run)
{
  begin_run(run, "<empty>", "stopped", "version: 1\n");
  run->machine = (struct plm_report_machine){.known = true, .products = "b", .product_flops = 1e9};
}

static void open_runs(struct plm_report_run runs[3])
{
  first_run(&runs[0]);
  second_run(&runs[1]);
  empty_run(&runs[2]);
}

static void close_runs(struct plm_report_run *runs, size_t count)
{
  for (size_t i = 0; i < count; i++) plm_report_run_deinit(&runs[i]);
}

static void the_charts_of_several_runs(void **state)
{
  (void)state;
  static struct plm_report_run runs[3];
  struct plm_text text = {0};
  open_runs(runs);
  plm_report_charts(&text, runs, 3);
  expected_file("stages/views/report/charts.html", text.data);
  plm_text_clear(&text);
  plm_report_charts(&text, runs, 1);
  expected_file("stages/views/report/charts_of_one.html", text.data);
  plm_text_deinit(&text);
  close_runs(runs, 3);
}

/* Cuts out what stands between two words. */
static void leave_out(char *text, const char *begin, const char *end)
{
  char *from = (char *)must(strstr(text, begin)) + strlen(begin);
  const char *to = must(strstr(from, end));
  memmove(from, to, strlen(to) + 1);
}

static void the_page_of_several_runs(void **state)
{
  (void)state;
  static struct plm_report_run runs[3];
  struct plm_text text = {0};
  open_runs(runs);
  plm_report_page(&text, runs, 3, "2026 & later");
  assert_non_null(strstr(text.data, plm_report_css));
  leave_out(text.data, "<style>\n", "</style>");
  leave_out(text.data, "<section class=\"charts\">\n", "</section>");
  leave_out(text.data, "<h2>Configuration</h2>\n", "<h2>Machine</h2>");
  leave_out(text.data, "<footer>plm-pipeline ", " report");
  expected_file("stages/views/report/page.html", text.data);
  plm_text_clear(&text);
  plm_report_page(&text, runs, 1, "now");
  assert_null(strstr(text.data, "<p class=\"runs\">"));
  assert_non_null(strstr(text.data, "<title>first</title>"));
  assert_non_null(strstr(text.data, "<footer>plm-pipeline " PLM_VERSION " report, now</footer>"));
  plm_text_deinit(&text);
  close_runs(runs, 3);
}

/* A list of corpora is a table, not a line of YAML. */
static void corpora_have_a_table(void **state)
{
  (void)state;
  static struct plm_report_run runs[2];
  struct plm_text text = {0};
  begin_run(&runs[0], "mixed", "stopped",
            "corpus: [{path: /a, weight: 3}, {path: /<b>, weight: 1, final_weight: 2, sampling: "
            "clusters}]\ndata: {mixture_steps: 7}\n");
  begin_run(&runs[1], "one", "stopped", "corpus: /c\n");
  plm_report_corpora(&text, &runs[1], 1);
  assert_int_equal(text.length, 0);
  plm_report_corpora(&text, runs, 2);
  assert_string_equal(
      text.data,
      "<h2>Corpora</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>run</th><th>corpus</th>"
      "<th>weight</th><th>sampling</th></tr></thead>\n<tbody>\n"
      "<tr><th scope=\"row\">mixed</th><td>/a</td><td>3</td><td>documents</td></tr>\n"
      "<tr><th scope=\"row\">mixed</th><td>/&lt;b&gt;</td><td>1 to 2 in 7 steps</td>"
      "<td>clusters</td></tr>\n"
      "<tr><th scope=\"row\">one</th><td>/c</td><td>1</td><td>documents</td></tr>\n"
      "</tbody></table></div>\n");
  plm_text_clear(&text);
  plm_report_settings(&text, runs, 2);
  assert_non_null(strstr(text.data, "corpus</th><td>the list above</td><td>/c</td>"));
  assert_string_equal(text.data + text.length - 11, "</details>\n");
  plm_text_deinit(&text);
  close_runs(runs, 2);
}

/* A run without tasks has no chart of them, and one with a kind of task only that kind's. */
static void tasks_have_charts_of_their_own(void **state)
{
  (void)state;
  static struct plm_report_run runs[2];
  struct plm_text text = {0};
  begin_run(&runs[1], "plain", "stopped", "version: 1\n");
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_loss, "valid", 2, (double[]){3, 2});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_spearman, "valid", 2, (double[]){0.5, 0.75});
  begin_run(&runs[0], "probed", "stopped", "version: 1\n");
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_spearman, "s", 2, (double[]){-0.25, 0.5});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_accuracy, "s", 1, (double[]){0.5});
  for (int which = 0; which < 3; which++) { /* one, the other, and both */
    plm_text_clear(&text);
    plm_report_charts(&text, &runs[which == 1], which == 2 ? 2 : 1);
    /* accuracy is not only of them */
    assert_int_equal(captured_times(text.data, "of evaluator.tasks"), which != 1);
  }
  assert_int_equal(captured_times(text.data, "aria-label=\"Spearman&#39;s correlation\""), 1);
  assert_non_null(strstr(strstr(text.data, "aria-label=\"Spearman"), ">0.4</text>")); /* to 0.5 */
  assert_non_null(strstr(text.data, "<path class=\"line d0\" d=\"M0 4H34\"/></svg>s</span>"));
  plm_text_deinit(&text);
  close_runs(runs, 2);
}

/* Rows of the summary from "lowest validation loss" to "tokens/s", without tags. */
static void summary_of(const struct plm_report_run *runs, size_t count, const char *expected)
{
  struct plm_text text = {0};
  plm_report_summary(&text, runs, count);
  char *begin = must(strstr(text.data, "<tr><th scope=\"row\">lowest"));
  *(char *)must(strstr(begin, "<tr><th scope=\"row\">tokens/s")) = '\0';
  assert_string_equal(begin, expected);
  plm_text_deinit(&text);
}

#define SUMMARY_ROW(heading, cells) "<tr><th scope=\"row\">" heading "</th>" cells "</tr>\n"

/* A run on labels has the measures of its objective; what a task measures is none of them. */
static void labels_have_measures_of_their_own(void **state)
{
  (void)state;
  static struct plm_report_run runs[3];
  struct plm_text text = {0};
  begin_run(&runs[2], "tokens", "stopped", "version: 1\n");
  begin_run(&runs[0], "numbers", "stopped", "trainer: {objective: regression, labels: [a]}\n");
  begin_run(&runs[1], "classes", "stopped", "trainer: {objective: classification, labels: [b]}\n");
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_loss, "valid", 2, (double[]){0.75, 0.5});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_spearman, "probe", 2, (double[]){0.1, 0.2});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_spearman, "valid", 2, (double[]){0.5, 0.625});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_pearson, "valid", 2, (double[]){0.5, 0.75});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_r2, "valid", 1, (double[]){-0.25});
  evaluate(&runs[0], PLM_REPORT_EVALUATOR_rmse, "valid", 2, (double[]){9, 1.5});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_loss, "valid", 2, (double[]){0.7, 0.25});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_accuracy, "valid", 2, (double[]){0.5, 0.875});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_macro_f1, "valid", 2, (double[]){0.5, 0.75});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_auroc, "valid", 2, (double[]){0.5, 0.9375});
  summary_of(runs, 1,
             SUMMARY_ROW("lowest validation loss", "<td>0.5000 (valid, step 4)</td>")
                 SUMMARY_ROW("last Spearman&#39;s correlation", "<td>0.625</td>")
                     SUMMARY_ROW("last Pearson&#39;s correlation", "<td>0.750</td>")
                         SUMMARY_ROW("last R\xC2\xB2", "<td>-0.250</td>")
                             SUMMARY_ROW("last RMSE", "<td>1.500</td>"));
  summary_of(&runs[1], 1,
             SUMMARY_ROW("lowest validation loss", "<td>0.2500 (valid, step 4)</td>")
                 SUMMARY_ROW("last validation accuracy", "<td>87.5 %</td>")
                     SUMMARY_ROW("last macro F1", "<td>0.750</td>")
                         SUMMARY_ROW("last Matthews correlation", "<td>\xE2\x80\x93</td>")
                             SUMMARY_ROW("last AUROC", "<td>0.938</td>"));
  plm_report_charts(&text, runs, 1);
  assert_int_equal(captured_times(text.data, "aria-label=\"RMSE\""), 1);
  assert_int_equal(captured_times(text.data, "aria-label=\"R\xC2\xB2\""), 1);
  assert_int_equal(captured_times(text.data, "mean squared error of the normalised numbers</span>"),
                   4);
  assert_null(strstr(text.data, "accuracy")); /* neither of validation nor of training */
  assert_null(strstr(text.data, "nats"));
  plm_text_clear(&text);
  plm_report_charts(&text, &runs[1], 1);
  assert_int_equal(captured_times(text.data, "aria-label=\"Macro F1\""), 1);
  assert_int_equal(captured_times(text.data, "aria-label=\"Training accuracy\""), 1);
  assert_non_null(strstr(text.data, "<b>Validation accuracy</b> <span>% of the labels</span>"));
  assert_null(strstr(text.data, "masked"));
  assert_null(strstr(text.data, "RMSE"));
  plm_text_clear(&text);
  plm_report_charts(&text, &runs[1], 2);
  assert_non_null(strstr(text.data, "<b>Validation accuracy</b> <span>%</span>"));
  assert_non_null(strstr(text.data, "<b>Matthews correlation</b> <span></span>"));
  plm_text_deinit(&text);
  close_runs(runs, 3);
}

/* The last dash is of all splits that have none, and 64 marks are drawn where there are steps. */
static void lines_and_marks_have_limits(void **state)
{
  static const char *const splits[PLM_CHART_DASHES + 1] = {"a", "b", "c", "d", "e"};
  static struct plm_report_run runs[2];
  struct plm_text text = {0};
  (void)state;
  for (int i = 0; i < 2; i++) {
    begin_run(&runs[i], "one", "stopped", "version: 1\n");
    train(&runs[i], PLM_REPORT_TRAINER_loss, i == 0 ? 4 : 1, (double[]){4, 3, 2, 1});
    train(&runs[i], PLM_REPORT_TRAINER_tokens, 4, (double[]){1e6, 2e6, 3e6, 5e6});
    for (uint64_t m = 0; m < 40; m++)
      runs[i].marks.list[runs[i].marks.count++] = (struct plm_report_mark){.step = m % 5};
  }
  for (int k = 0; k <= PLM_CHART_DASHES; k++)
    evaluate(&runs[0], PLM_REPORT_EVALUATOR_loss, splits[k], 2, (double[]){3, 2});
  evaluate(&runs[1], PLM_REPORT_EVALUATOR_loss, "b", 2, (double[]){3, 2});
  plm_report_charts(&text, runs, 2);
  assert_int_equal(captured_times(text.data, "<line class=\"mark "), 2 * 64);
  assert_int_equal(captured_times(text.data, "<path class=\"line c0 d3\""), 2);
  assert_int_equal(captured_times(text.data, "class=\"line d3\" d=\"M0 4H34\"/></svg>d<"), 1);
  assert_int_equal(captured_times(text.data, "class=\"line d1\""), 3); /* b twice, and a stall */
  assert_null(strstr(text.data, " d4\""));
  assert_int_equal(captured_times(text.data, "<path class=\"line c1 d0\""), 2); /* one point */
  assert_null(strstr(text.data, "class=\"level\"")); /* nobody knows it */
  plm_text_deinit(&text);
  close_runs(runs, 2);
}

/* A run may have only one of the rates. */
static void a_rate_is_drawn_without_the_others(void **state)
{
  static const enum plm_report_trainer_metric metrics[] = {PLM_REPORT_TRAINER_lr_hidden,
                                                           PLM_REPORT_TRAINER_lr_embed};
  static const char *const names[] = {"one, hidden matrices: 0.25", "one, embeddings: 0.25"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    static struct plm_report_run run;
    struct plm_text text = {0};
    begin_run(&run, "one", "stopped", "version: 1\n");
    train(&run, PLM_REPORT_TRAINER_loss, 3, (double[]){3, 2, 1}); /* the axis has its steps */
    train(&run, metrics[i], 2, (double[]){0.5, 0.25});
    plm_report_charts(&text, &run, 1);
    for (int k = 0; k < 2; k++) assert_int_equal(captured_times(text.data, names[k]), k == i);
    plm_text_deinit(&text);
    plm_report_run_deinit(&run);
  }
}

/* As many sources as a run can have, and more than there are colors, can be told apart. Charts of
 * several runs name the run; a run on one corpus has none. */
static void sources_have_lines_of_their_own(void **state)
{
  (void)state;
  static struct plm_report_run runs[3];
  struct plm_text text = {0};
  static const char *const names[] = {"one", "many", "<two>"};
  for (int i = 0; i < 3; i++) begin_run(&runs[i], names[i], "stopped", "version: 1\n");
  for (int k = 0; k < PLM_MAX_SOURCES; k++) {
    char name[16];
    snprintf(name, sizeof name, "source-%d", k);
    train_source(&runs[1], PLM_REPORT_TRAINER_loss_by_source, name, 2, (double[]){k + 1, k + 2});
  }
  train_source(&runs[2], PLM_REPORT_TRAINER_loss_by_source, "a", 2, (double[]){1, 2});
  plm_report_charts(&text, &runs[1], 1);
  assert_int_equal(captured_times(text.data, "aria-label=\"Loss by source\""), 1);
  assert_null(strstr(text.data, "Tokens by source"));
  for (unsigned k = 0; k < PLM_MAX_SOURCES; k++) {
    char key[128];
    snprintf(key, sizeof key, "<path class=\"line c%u d%u\" d=\"M0 4H34\"/></svg>source-%u</span>",
             k % 8, k / 8, k);
    assert_int_equal(captured_times(text.data, key), 1);
    snprintf(key, sizeof key, "<path class=\"line c%u d%u\"", k % 8, k / 8);
    assert_int_equal(captured_times(text.data, key), 2); /* in the legend and in the chart */
  }
  plm_text_clear(&text);
  plm_report_charts(&text, runs, 3);
  assert_int_equal(captured_times(text.data, "<figcaption><b>Loss by source"), 2);
  assert_non_null(strstr(text.data, "<figcaption><b>Loss by source, many</b>"));
  assert_non_null(strstr(text.data, "<figcaption><b>Loss by source, &lt;two&gt;</b>"));
  plm_text_clear(&text);
  plm_report_charts(&text, &runs[0], 1);
  assert_null(strstr(text.data, "by source"));
  plm_text_deinit(&text);
  close_runs(runs, 3);
}

/* A row of the summary for a run of which one metric is known. */
static void assert_cell(enum plm_report_trainer_metric metric, size_t count, const double *y,
                        const char *row)
{
  static struct plm_report_run run;
  struct plm_text text = {0};
  empty_run(&run);
  train(&run, metric, count, y);
  plm_report_summary(&text, &run, 1);
  if (strstr(text.data, row) == NULL) fail_msg("no %s in: %s", row, text.data);
  plm_text_deinit(&text);
  plm_report_run_deinit(&run);
}

static void figures_at_their_limits(void **state)
{
  (void)state;
  static const struct {
    double value;
    const char *row;
  } durations[] = {{59499, ">59 s<"},         {59500, ">1 min 0 s<"},   {3599000, ">59 min 59 s<"},
                   {3600000, ">1 h 0 min<"},  {3659000, ">1 h 0 min<"}, {7260000, ">2 h 1 min<"},
                   {90000000, ">25 h 0 min<"}},
    memory[] = {{9.9994e9, ">9999 MB<"}, {1e10, ">10.0 GB<"}, {1.26e10, ">12.6 GB<"}},
    tokens[] = {{0, ">0<"},
                {999, ">999<"},
                {1000, ">1,000<"},
                {999999, ">999,999<"},
                {1000000, ">1,000,000<"},
                {-1000, ">-1,000<"},
                {-100, ">-100<"}};
  for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
    assert_cell(PLM_REPORT_TRAINER_step_ms, 1, &durations[i].value, durations[i].row);
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    assert_cell(PLM_REPORT_TRAINER_memory_bytes, 1, &memory[i].value, memory[i].row);
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
    assert_cell(PLM_REPORT_TRAINER_tokens, 1, &tokens[i].value, tokens[i].row);
  assert_cell(PLM_REPORT_TRAINER_tokens_per_second, 3, (double[]){7, 5, 6}, "median)</th><td>6<");
  assert_cell(PLM_REPORT_TRAINER_step_ms, 2, (double[]){20000, 10000}, ">30 s<");
}

static void settings_that_differ_are_marked(void **state)
{
  (void)state;
  static struct plm_report_run runs[3];
  struct plm_text text = {0};
  size_t keys, rows = 0;
  open_runs(runs);
  plm_report_settings(&text, runs, 3);
  char *all = strstr(text.data, "</tbody></table></div>\n<details><summary>All keys</summary>\n");
  assert_non_null(all);
  *all++ = '\0';
  assert_string_equal(
      text.data,
      "<h2>Configuration</h2>\n<p>The keys of pipeline.yaml whose values are not the defaults. "
      "Those that differ between the runs are marked.</p>\n"
      "<div class=\"wide\"><table>\n<thead><tr><th>key</th><th>first</th><th>second</th>"
      "<th>&lt;empty&gt;</th><th>default</th></tr></thead>\n<tbody>\n"
      "<tr class=\"differs\"><th scope=\"row\">seed</th><td>2</td><td>3</td><td>1</td>"
      "<td class=\"default\">1</td></tr>\n"
      "<tr class=\"differs\"><th scope=\"row\">trainer.steps</th><td>1234567</td><td>300</td>"
      "<td>300</td><td class=\"default\">300</td></tr>\n");
  (void)plm_settings(&keys);
  for (const char *row = all; (row = strstr(row, "<th scope=\"row\">")) != NULL; row++) rows++;
  assert_int_equal(rows, keys);
  assert_non_null(strstr(all, "<tr><th scope=\"row\">version</th><td>1</td><td>1</td><td>1</td>"
                              "<td class=\"default\">1</td></tr>\n"));
  plm_text_clear(&text);
  plm_report_settings(&text, runs, 1);
  assert_non_null(strstr(text.data, "are not the defaults.</p>\n"));
  assert_non_null(strstr(text.data, "<tr><th scope=\"row\">seed</th><td>2</td><td class"));
  assert_null(strstr(text.data, "differs"));
  plm_text_deinit(&text);
  close_runs(runs, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_charts_of_several_runs),
      cmocka_unit_test(the_page_of_several_runs),
      cmocka_unit_test(figures_at_their_limits),
      cmocka_unit_test(corpora_have_a_table),
      cmocka_unit_test(tasks_have_charts_of_their_own),
      cmocka_unit_test(labels_have_measures_of_their_own),
      cmocka_unit_test(lines_and_marks_have_limits),
      cmocka_unit_test(a_rate_is_drawn_without_the_others),
      cmocka_unit_test(sources_have_lines_of_their_own),
      cmocka_unit_test(settings_that_differ_are_marked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
