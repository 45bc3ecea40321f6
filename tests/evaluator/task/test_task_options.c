/* The options that the evaluator's tasks share: numbers in a range, and the device; and that no
 * task takes a value that cannot be read. */
#include "tests/support/harness/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log/log.h"
#include "common/ops/open.h"
#include "evaluator/task/npy_header.h"
#include "evaluator/task/task.h"
#include "tests/support/cases/task_line.h"
#include "tests/support/harness/captured.h"

static const struct plm_option table[] = {
    {.name = "rate", .argument = "X"},
    {.name = "other", .argument = "X"},
    {.name = "device", .argument = "D"},
    {.name = "precision", .argument = "P"},
    {.name = "threads", .argument = "N"},
    {.name = "max-length", .argument = "N"},
    {0},
};

static void parse(char *first, char *second, struct plm_arguments *arguments)
{
  static char program[] = "task";
  char *argv[] = {program, first, second, NULL};
  const int argc = first == NULL ? 1 : second == NULL ? 2 : 3;
  struct plm_error error = {0};
  if (plm_arguments_parse(argc, argv, table, arguments, &error) != PLM_OK)
    fail_msg("%s", error.what);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The number that --rate=TEXT gives in (or [) 0.5, 2]; NaN if it is refused. */
static double rate(const char *text, bool low_included)
{
  char option[100], expected[200];
  struct plm_arguments arguments;
  struct plm_error error = {0};
  double value = 77;
  snprintf(option, sizeof option, "--rate=%s", text);
  parse(option, NULL, &arguments);
  const plm_status status =
      plm_task_number(&arguments, "rate", 0.5, low_included, 2, &value, &error);
  plm_arguments_deinit(&arguments);
  if (status == PLM_OK) return value;
  snprintf(expected, sizeof expected, "--rate %s is not a number in %s0.5, 2]", text,
           low_included ? "[" : "(");
  assert_int_equal(status, PLM_USAGE);
  assert_string_equal(error.what, expected);
  assert_true(value == 77);
  return (double)NAN;
}

static void numbers_lie_in_their_range(void **state)
{
  (void)state;
  for (int included = 0; included < 2; included++) {
    assert_true(rate("0.75", included) == 0.75);
    assert_true(rate("2", included) == 2);
    assert_true(rate("0.5000001", included) == 0.5000001);
    assert_true(isnan(rate("2.0000001", included)));
    assert_true(isnan(rate("0.4999999", included)));
    assert_true(isnan(rate("-1", included)));
    assert_true(isnan(rate("nan", included)));
    assert_true(isnan(rate("1x", included)));
    assert_true(isnan(rate("x", included)));
    assert_true(isnan(rate("", included)));
  }
  assert_true(isnan(rate("0.5", false)));
  assert_true(rate("0.5", true) == 0.5);
}

static void an_option_that_is_not_given_changes_nothing(void **state)
{
  (void)state;
  char option[] = "--other=1";
  struct plm_arguments arguments;
  double value = 77;
  parse(option, NULL, &arguments);
  assert_int_equal(plm_task_number(&arguments, "rate", 0, false, 1, &value, NULL), PLM_OK);
  plm_arguments_deinit(&arguments);
  assert_true(value == 77);
}

static void a_length_is_a_number_of_tokens(void **state)
{
  static const struct {
    const char *option;
    plm_status status;
    uint32_t tokens;
  } rows[] = {{"--max-length=1", PLM_OK, 1},
              {"--max-length=4294967295", PLM_OK, UINT32_MAX},
              {"--max-length=4294967296", PLM_USAGE, 0},
              {"--max-length=0", PLM_USAGE, 0},
              {"--other=1", PLM_OK, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char option[40], expected[100];
    struct plm_arguments arguments;
    struct plm_error error = {0};
    uint32_t tokens = 77;
    snprintf(option, sizeof option, "%s", rows[i].option);
    parse(option, NULL, &arguments);
    assert_int_equal(plm_task_max_length(&arguments, &tokens, &error), rows[i].status);
    plm_arguments_deinit(&arguments);
    assert_int_equal(tokens, rows[i].tokens);
    snprintf(expected, sizeof expected, "--max-length %s is not a number of tokens",
             strchr(rows[i].option, '=') + 1);
    if (rows[i].status != PLM_OK) assert_string_equal(error.what, expected);
  }
}

/* ---- the device ------------------------------------------------------------------------------ */

static void expect_ops(char *first, char *second, uint32_t asked, size_t act_bytes,
                       uint32_t threads)
{
  struct plm_arguments arguments;
  struct plm_error error = {0};
  struct plm_ops *ops;
  parse(first, second, &arguments);
  const struct plm_ops_request request = {.device = PLM_DEVICE_CPU, .threads = asked};
  bool faster;
  const char *gain = plm_ops_cpu_int8_gain(&faster);
  plm_log_init("t", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  const plm_status status = plm_task_open_ops(&arguments, request, &ops, &error);
  const char *said = captured_end();
  if (status == PLM_OK && ops->int8) /* a warning only if nothing is gained */
    assert_true(strstr(said, gain) == said + strlen(faster ? "t: " : "t: warning: "));
  plm_arguments_deinit(&arguments);
  if (status != PLM_OK) fail_msg("%s", error.what);
  assert_string_equal(ops->name, "cpu");
  assert_int_equal(ops->act_bytes, act_bytes);
  assert_int_equal(ops->int8, first != NULL && strcmp(first, "--precision=int8") == 0);
  if (threads > 0) assert_int_equal(ops->threads, threads);
  ops->close(ops);
}

static void options_choose_the_operators(void **state)
{
  (void)state;
  char threads[] = "--threads=3", fp32[] = "--precision=fp32", narrow[] = "--precision=bf16",
       int8[] = "--precision=int8", cpu[] = "--device=cpu", automatic[] = "--device=auto";
  expect_ops(NULL, NULL, 2, 4, 2);
  expect_ops(threads, NULL, 2, 4, 3);
  expect_ops(fp32, threads, 1, 4, 3);
  expect_ops(narrow, threads, 1, 2, 3);
  expect_ops(cpu, threads, 1, 4, 3);
  expect_ops(automatic, threads, 1, 4, 3); /* there is no GPU in tests */
  expect_ops(int8, threads, 1, 4, 3);
}

static void refuses(const char *text, const char *message)
{
  char option[64];
  struct plm_arguments arguments;
  struct plm_error error = {0};
  struct plm_ops *ops;
  snprintf(option, sizeof option, "%s", text);
  parse(option, NULL, &arguments);
  assert_int_equal(plm_task_open_ops(&arguments, (struct plm_ops_request){0}, &ops, &error),
                   PLM_USAGE);
  plm_arguments_deinit(&arguments);
  assert_string_equal(error.what, message);
}

static void other_words_are_refused(void **state)
{
  (void)state;
  refuses("--device=gpu", "--device must be auto, cpu or cuda, not \"gpu\"");
  refuses("--precision=fp16", "--precision must be fp32, bf16 or int8, not \"fp16\"");
}

/* ---- npy ------------------------------------------------------------------------------------- */

/* Blanks stand between the dictionary and the line end, also for the largest numbers. */
static void npy_headers_hold_any_shape(void **state)
{
  (void)state;
  static const struct {
    uint64_t rows;
    uint32_t columns;
  } cases[] = {{1, 1}, {123, 45678}, {UINT64_MAX, UINT32_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char header[PLM_NPY_HEADER_SIZE + 1], expected[PLM_NPY_HEADER_SIZE + 1];
    header[PLM_NPY_HEADER_SIZE] = 'x';
    plm_npy_header(header, cases[i].rows, cases[i].columns);
    const int length = snprintf(expected, sizeof expected,
                                "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %u), }",
                                (unsigned long long)cases[i].rows, cases[i].columns);
    memset(expected + length, ' ', sizeof expected - (size_t)length);
    assert_memory_equal(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 0x76: 128 - 10 */
    assert_memory_equal(header + 10, expected, PLM_NPY_HEADER_SIZE - 11);
    assert_int_equal(header[PLM_NPY_HEADER_SIZE - 1], '\n');
    assert_int_equal(header[PLM_NPY_HEADER_SIZE], 'x');
  }
}

/* ---- each task ------------------------------------------------------------------------------- */

/* An option whose value cannot be read ends each task that has the option. */
static void values_that_cannot_be_read(void **state)
{
  (void)state;
#define ALL "max-length threads device precision "
#define SCORE "--checkpoint C --wild-type W "
  static const struct {
    const struct plm_program *task;
    const char *begin, *options;
  } rows[] = {
      {&plm_task_embed, "--checkpoint C in --output o", ALL "batch-tokens gaps resume pooling"},
      {&plm_task_predict, "--checkpoint C in --output o", ALL "batch-tokens gaps resume"},
      {&plm_task_evaluate, "--checkpoint C --corpus D",
       ALL "max-tokens seed elbo-rates mask-rate random-fraction keep-fraction pseudo-perplexity"},
      {&plm_task_generate, "--checkpoint C --output o",
       ALL "max-tokens seed count steps length top-k top-p temperature remask"},
      {&plm_task_score, SCORE "A1G", ALL "offset gaps color masking"},
      {&plm_task_score, SCORE "--per-position", ALL "offset gaps color masking"},
      {&plm_task_score, "--checkpoint C --assays A --reference R --scores S",
       ALL "max-variants masking"},
      {&plm_task_probe, "--checkpoint C table.csv --target t", ALL "alpha task pooling"},
      {&plm_task_probe, "--checkpoint C folder --task contacts", ALL "train"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (const char *option = rows[i].options; *option != '\0';) {
      const int length = (int)strcspn(option, " ");
      char line[200], what[100];
      struct plm_error error = {0};
      snprintf(line, sizeof line, "%s --%.*s x1", rows[i].begin, length, option);
      snprintf(what, sizeof what, "--%.*s", length, option);
      if (task_line_run(rows[i].task, line, &error) != PLM_USAGE ||
          strstr(error.what, what) == NULL)
        fail_msg("%s: %s", line, error.what);
      option += length + (option[length] == ' ');
    }
  task_line_end();
}

/* Values at both ends of their ranges come as far as the model, which is missing. */
static void values_at_the_ends_are_taken(void **state)
{
  (void)state;
#define EVALUATE "--checkpoint /none --corpus D --"
#define GENERATE "--checkpoint /none --output /none/o --"
  static const struct {
    const struct plm_program *task;
    const char *begin, *values;
  } rows[] = {
      {&plm_task_evaluate, EVALUATE, "elbo-rates 1"},
      {&plm_task_evaluate, EVALUATE, "elbo-rates 64"},
      {&plm_task_evaluate, EVALUATE, "random-fraction 1"},
      {&plm_task_evaluate, EVALUATE, "keep-fraction 0"},
      {&plm_task_evaluate, EVALUATE, "keep-fraction 1"},
      {&plm_task_evaluate, EVALUATE, "mask-rate 1"},
      {&plm_task_evaluate, EVALUATE, "max-tokens 0"},
      {&plm_task_evaluate, EVALUATE, "seed 0"},
      {&plm_task_generate, GENERATE, "temperature 0"},
      {&plm_task_generate, GENERATE, "temperature 1000000"},
      {&plm_task_generate, GENERATE, "top-p 1"},
      {&plm_task_generate, GENERATE, "seed 18446744073709551615"},
      {&plm_task_probe, "--checkpoint /none table.csv --target t --", "alpha 1e12"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char line[200];
    struct plm_error error = {0};
    snprintf(line, sizeof line, "%s%s", rows[i].begin, rows[i].values);
    const plm_status status = task_line_run(rows[i].task, line, &error);
    if (status != PLM_NOT_FOUND || strcmp(error.what, "there is no such folder") != 0)
      fail_msg("%s: %d, %s", line, (int)status, error.what);
  }
  task_line_end();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_lie_in_their_range),
      cmocka_unit_test(a_length_is_a_number_of_tokens),
      cmocka_unit_test(an_option_that_is_not_given_changes_nothing),
      cmocka_unit_test(options_choose_the_operators),
      cmocka_unit_test(other_words_are_refused),
      cmocka_unit_test(npy_headers_hold_any_shape),
      cmocka_unit_test(values_that_cannot_be_read),
      cmocka_unit_test(values_at_the_ends_are_taken),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
