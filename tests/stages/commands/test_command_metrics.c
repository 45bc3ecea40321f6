/* `plm-pipeline metrics`: which columns a table has and where they end, what CSV and JSON have, and
 * what is refused. That -f follows a file: test_metrics_command.sh. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "common/base/files/file.h"
#include "common/base/text/text.h"
#include "tests/support/cases/command_case.h"
#include "tests/support/harness/scratch.h"

static char run[PLM_PATH_SIZE];

static int setup(void **state)
{
  (void)state;
  scratch_run(run);
  return 0;
}

static void write_lines(const char *folder, const char *name, const char *text)
{
  char path[PLM_PATH_SIZE];
  assert_int_equal(plm_path_join(path, folder, name, NULL), PLM_OK);
  scratch_write(path, text, strlen(text));
}

static void expect(int code, const char *out, const char *err, int found)
{
  assert_string_equal(command_err, err);
  assert_string_equal(command_out, out);
  assert_int_equal(found, code);
}

/* Numbers have 12 columns, or their name after two spaces. Columns without a value are left out. */
static void a_table_has_the_columns_with_values(void **state)
{
  (void)state;
  write_lines(run, "evaluator.jsonl",
              "{\"v\":1,\"step\":8,\"split\":\"valid\",\"loss\":2.5,\"baseline_entropy\":2.875,"
              "\"spearman\":null,\"loss_by_length\":{\"0\":1}}\n"
              "no line\n[1]\n"
              "{\"v\":1,\"step\":1234567890123,\"skipped\":\"it is gone\"}\n"
              "{\"v\":1,\"step\":12,\"set\":\"refseq\",\"split\":\"test\",\"loss\":0.1234567891,"
              "\"tokens\":4000000}\n");
  const int code = COMMAND_ON_TERMINAL(200, "metrics", "--run", run);
  expect(0,
         "        step       split        loss  baseline_entropy      tokens         set\n"
         "           8       valid         2.5             2.875                        \n"
         "1234567890123  skipped: it is gone\n"
         "          12  refseq test    0.123457                         4e+06      refseq\n",
         "", code);
}

/* Of the columns with values, as many as fit; all of them if not even the first one fits, or if
 * --keys names them. */
static void a_table_fits_the_terminal(void **state)
{
  static const struct {
    unsigned short columns;
    const char *head;
  } cases[] = {
      {54, "        step       split        loss  baseline_entropy\n"},
      {53, "        step       split        loss\n"},
      {36, "        step       split        loss\n"},
      {35, "        step       split\n"},
      {12, "        step\n"},
      {11, "        step       split        loss  baseline_entropy\n"},
      {0, "        step       split        loss  baseline_entropy\n"},
  };
  (void)state;
  write_lines(run, "evaluator.jsonl",
              "{\"step\":1,\"loss\":2,\"split\":\"a\"}\n"
              "{\"step\":1,\"baseline_entropy\":1}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char head[128];
    assert_int_equal(COMMAND_ON_TERMINAL(cases[i].columns, "metrics", "--run", run), 0);
    snprintf(head, sizeof head, "%.*s\n", (int)strcspn(command_out, "\n"), command_out);
    assert_string_equal(head, cases[i].head);
  }
  assert_int_equal(
      COMMAND_ON_TERMINAL(20, "metrics", "--run", run, "--keys", "mcc,loss,baseline_entropy"), 0);
  assert_string_equal(command_out, "         mcc        loss  baseline_entropy\n"
                                   "                       2                  \n"
                                   "                                         1\n");
}

/* The head comes again after 40 lines, and in CSV only once. */
static void the_head_is_repeated(void **state)
{
  (void)state;
  struct plm_text lines = {0}, table = {0}, csv = {0};
  for (int i = 0; i <= 81; i++) {
    if (i % 40 == 0) plm_text_puts(&table, "        loss\n");
    if (i == 0) plm_text_puts(&csv, "loss\n");
    plm_text_printf(&lines, "{\"loss\":%d}\n", i);
    plm_text_printf(&table, "%12d\n", i);
    plm_text_printf(&csv, "%d\n", i);
  }
  write_lines(run, "trainer.jsonl", lines.data);
  int code = COMMAND_ON_TERMINAL(80, "metrics", "trainer", "--run", run, "--keys", "loss");
  expect(0, table.data, "", code);
  code = COMMAND_ON_TERMINAL(80, "metrics", "trainer", "--csv", "--run", run, "--keys", "loss");
  expect(0, csv.data, "", code);
  code = COMMAND("metrics", "trainer", "--csv", "--run", run, "--keys", "loss");
  expect(0, csv.data, "", code);
  plm_text_deinit(&lines);
  plm_text_deinit(&table);
  plm_text_deinit(&csv);
}

/* With several runs, each line begins with its run. */
static void runs_are_named(void **state)
{
  (void)state;
  char other[PLM_PATH_SIZE], expected[6 * PLM_PATH_SIZE];
  scratch_run(other);
  write_lines(run, "trainer.jsonl", "{\"step\":1,\"loss\":2}\n");
  write_lines(other, "trainer.jsonl",
              "{\"step\":3,\"loss\":0.30000000000000004}\n{}\n{\"step\":4,\"skipped\":\"why\"}\n");
  /* one line of each run in turn */
  int code =
      COMMAND("metrics", "trainer", "--csv", "--run", run, "--run", other, "--keys", "step,loss");
  snprintf(expected, sizeof expected,
           "run,step,loss\n%s,1,2\n%s,3,0.30000000000000004\n%s,,\n%s,4,\n", run, other, other,
           other);
  expect(0, expected, "", code);
  code = COMMAND("metrics", "trainer", "--run", run, "--run", other);
  snprintf(expected, sizeof expected,
           "{\"run\":\"%s\",\"step\":1,\"loss\":2}\n"
           "{\"run\":\"%s\",\"step\":3,\"loss\":0.30000000000000004}\n{\"run\":\"%s\"}\n"
           "{\"run\":\"%s\",\"step\":4,\"skipped\":\"why\"}\n",
           run, other, other, other);
  expect(0, expected, "", code);
  code = COMMAND("metrics", "trainer", "--run", run, "--run", other, "--keys", "loss");
  snprintf(expected, sizeof expected,
           "{\"run\":\"%s\",\"loss\":2}\n{\"run\":\"%s\",\"loss\":0.30000000000000004}\n"
           "{\"run\":\"%s\"}\n{\"run\":\"%s\"}\n",
           run, other, other, other);
  expect(0, expected, "", code);
  code = COMMAND_ON_TERMINAL(24, "metrics", "trainer", "--run", run, "--run", other, "--keys",
                             "step,loss");
  const int width = (int)strlen(run) + 2;
  assert_int_equal(strlen(other), strlen(run));
  snprintf(expected, sizeof expected,
           "%*s        step        loss\n  %s           1           2\n"
           "  %s           3         0.3\n  %s                        \n  %s           4  skipped: "
           "why\n",
           width, "run", run, other, other, other);
  expect(0, expected, "", code);
}

/* The name of the longest run says how wide its column is, wherever it stands. */
static void the_longest_run_counts(void **state)
{
  (void)state;
  char expected[6 * PLM_PATH_SIZE], longer[PLM_PATH_SIZE];
  scratch_run(longer);
  snprintf(longer + strlen(longer), 8, "/x");
  assert_int_equal(plm_directory_make(longer, NULL), PLM_OK);
  write_lines(run, "trainer.jsonl", "{\"step\":1}\n");
  write_lines(longer, "trainer.jsonl", "{\"step\":2}\n");
  const int width = (int)strlen(longer) + 2;
  int code = COMMAND_ON_TERMINAL(24, "metrics", "trainer", "--run", run, "--run", longer, "--keys",
                                 "step");
  snprintf(expected, sizeof expected, "%*s        step\n%*s           1\n%*s           2\n", width,
           "run", width, run, width, longer);
  expect(0, expected, "", code);
  code = COMMAND_ON_TERMINAL(24, "metrics", "trainer", "--run", longer, "--run", run, "--keys",
                             "step");
  snprintf(expected, sizeof expected, "%*s        step\n%*s           2\n%*s           1\n", width,
           "run", width, longer, width, run);
  expect(0, expected, "", code);
}

/* Words, numbers with the digits that they need, and parts of objects. */
static void values_are_exact(void **state)
{
  (void)state;
  write_lines(run, "trainer.jsonl",
              "{\"v\":1,\"step\":9007199254740993,\"exact\":false,\"loss\":0.1,\"mfu\":1e-7,"
              "\"warning\":\"a \\\"word\\\", and more\",\"loss_by_source\":{\"a\":0.2,\"b\":"
              "null}}\n");
  int code = COMMAND("metrics", "trainer", "--csv", "--run", run, "--keys",
                     "exact,loss,mfu,warning,loss_by_source,loss_by_source/a,loss_by_source/c");
  expect(0,
         "exact,loss,mfu,warning,loss_by_source,loss_by_source/a,loss_by_source/c\n"
         "false,0.1,1e-07,\"a \"\"word\"\", and more\",,0.2,\n",
         "", code);
  code = COMMAND("metrics", "trainer", "--run", run, "--keys",
                 "exact,loss,loss_by_source,loss_by_source/a,loss_by_source/c");
  expect(0,
         "{\"exact\":false,\"loss\":0.1,\"loss_by_source\":{\"a\":0.2,\"b\":null},"
         "\"loss_by_source/a\":0.2}\n",
         "", code);
  code = COMMAND("metrics", "trainer", "--json", "--run", run, "--keys", "loss,exact");
  expect(0, "{\"loss\":0.1,\"exact\":false}\n", "", code);
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* The columns of the line after the heading: its characters in UTF-8. */
static size_t width_of_plot(void)
{
  const char *at = strchr(command_out, '\n');
  size_t width = 0;
  assert_non_null(at);
  for (at++; *at != '\n' && *at != '\0'; at++) width += ((unsigned char)*at & 0xC0) != 0x80;
  return width;
}

static void a_plot_is_as_wide_as_the_terminal(void **state)
{
  static const struct {
    unsigned short terminal;
    size_t plot;
  } cases[] = {{0, 100}, {80, 80}, {120, 120}, {121, 120}};
  (void)state;
  write_lines(run, "trainer.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(COMMAND_ON_TERMINAL(cases[i].terminal, "metrics", "trainer", "--plot",
                                         "--color", "never", "--run", run),
                     0);
    assert_int_equal(width_of_plot(), cases[i].plot);
  }
  assert_int_equal(COMMAND("metrics", "trainer", "--plot", "--run", run), 0);
  assert_int_equal(width_of_plot(), 100);
}

/* A curve is named by the last part of its run, and by its split if the run has several. The level
 * of the composition is shown for the loss only. */
static void curves_are_named(void **state)
{
  (void)state;
  char other[PLM_PATH_SIZE], expected[2 * PLM_PATH_SIZE];
  scratch_run(other);
  write_lines(run, "evaluator.jsonl",
              "{\"step\":1,\"split\":\"valid\",\"loss\":2,\"accuracy\":0.5,\"baseline_entropy\":"
              "2.5}\n{\"step\":1,\"split\":\"test\",\"loss\":3}\n");
  write_lines(other, "evaluator.jsonl", "{\"step\":1,\"split\":\"valid\",\"loss\":4}\n");
  const char *names[] = {strrchr(run, '/') + 1, strrchr(other, '/') + 1};
  assert_int_equal(COMMAND("metrics", "--plot", "--run", run, "--run", other), 0);
  snprintf(expected, sizeof expected,
           "          loss  - %s valid  - %s test  - %s  (.. composition only 2.5)\n", names[0],
           names[0], names[1]);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_int_equal(COMMAND("metrics", "--plot", "--run", run, "--keys", "accuracy"), 0);
  snprintf(expected, sizeof expected, "          accuracy  - %s\n", names[0]);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
  assert_int_equal(COMMAND("metrics", "--plot", "--run", other), 0);
  snprintf(expected, sizeof expected, "          loss  - %s\n", names[1]);
  assert_int_equal(strncmp(command_out, expected, strlen(expected)), 0);
}

/* ---- what is refused ---------------------------------------------------------------------------
 */

static void many(struct plm_text *text, const char *word, int count)
{
  for (int i = 0; i < count; i++) plm_text_printf(text, "%s%s", i > 0 ? "," : "", word);
}

static void fields_are_checked(void **state)
{
  (void)state;
  struct plm_text most = {0};
  many(&most, "loss", 32);
  write_lines(run, "evaluator.jsonl", "{\"loss\":2}\n");
  assert_int_equal(COMMAND("metrics", "--run", run, "--keys", most.data), 0);
  plm_text_puts(&most, ",loss");
  int code = COMMAND("metrics", "--run", run, "--keys", most.data);
  expect(2, "", "plm-pipeline: --keys names more than 32 fields\n", code);
  plm_text_deinit(&most);
  code = COMMAND("metrics", "--run", run, "--keys", ",");
  expect(2, "", "plm-pipeline: --keys names no field\n", code);
  code = COMMAND("metrics", "packer", "--run", run, "--keys", "queue,loss");
  expect(2, "",
         "plm-pipeline: the packer has no metric \"loss\"\n  its metrics are packer windows "
         "documents_per_second tokens_per_second padding_fraction queue time\n",
         code);
  code = COMMAND("metrics", "trainr", "--run", run);
  expect(2, "",
         "plm-pipeline: \"trainr\" is not a stage; the stages are evaluator, trainer and packer\n",
         code);
  assert_int_equal(COMMAND("metrics", "--run", run, "--set", "seed=1"), 2);
  assert_non_null(strstr(command_err, "--set seed has no effect on metrics"));
  code = COMMAND("metrics", "trainer", "packer", "--run", run);
  expect(2, "", "plm-pipeline: unexpected argument \"packer\"\n", code);
}

static void runs_are_checked(void **state)
{
  (void)state;
  char expected[PLM_PATH_SIZE + 100];
  const char *words[40] = {"metrics"};
  for (int i = 0; i < 16; i++) {
    words[1 + 2 * i] = "--run";
    words[2 + 2 * i] = run;
  }
  snprintf(expected, sizeof expected, "plm-pipeline: no metrics of the evaluator yet in %s\n", run);
  int code = command_case(words);
  expect(0, "", expected, code);
  words[33] = "-q";
  code = command_case(words);
  expect(0, "", "", code);
  write_lines(run, "evaluator.jsonl", "{\"step\":1,\"split\":\"valid\",\"loss\":2}\n");
  words[33] = "--plot";
  assert_int_equal(command_case(words), 0);
  snprintf(expected, sizeof expected, "  - %s", strrchr(run, '/') + 1);
  size_t curves = 0;
  for (const char *at = command_out; (at = strstr(at, expected)) != NULL; at++) curves++;
  assert_int_equal(curves, 16);
  words[33] = "--run";
  words[34] = run;
  code = command_case(words);
  expect(2, "", "plm-pipeline: --run is given more than 16 times\n", code);
  code = COMMAND("metrics", "--run", run, "--run", scratch_path("nowhere"));
  snprintf(expected, sizeof expected,
           "plm-pipeline: there is no run folder %s\n  start a run with `plm-pipeline up`, or name "
           "one with --run DIR\n",
           scratch_path("nowhere"));
  expect(1, "", expected, code);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(a_table_has_the_columns_with_values, setup),
      cmocka_unit_test_setup(a_table_fits_the_terminal, setup),
      cmocka_unit_test_setup(the_head_is_repeated, setup),
      cmocka_unit_test_setup(runs_are_named, setup),
      cmocka_unit_test_setup(the_longest_run_counts, setup),
      cmocka_unit_test_setup(values_are_exact, setup),
      cmocka_unit_test_setup(a_plot_is_as_wide_as_the_terminal, setup),
      cmocka_unit_test_setup(curves_are_named, setup),
      cmocka_unit_test_setup(fields_are_checked, setup),
      cmocka_unit_test_setup(runs_are_checked, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
