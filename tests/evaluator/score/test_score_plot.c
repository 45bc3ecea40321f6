/* The map of `score --plot` is as wide as the terminal. */
#include "tests/support/harness/cmocka_all.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "evaluator/score/score_variants.h"
#include "tests/support/cases/inference_case.h"
#include "tests/support/harness/captured.h"

static unsigned short columns; /* of the terminal; 0: stdout is none */

/* Takes the place of libc's function in this program, which asks only for the size of stdout. */
int ioctl(int descriptor, unsigned long request, ...)
{
  va_list arguments;
  va_start(arguments, request);
  struct winsize *window = va_arg(arguments, struct winsize *);
  va_end(arguments);
  assert_int_equal(descriptor, STDOUT_FILENO);
  assert_true(request == TIOCGWINSZ);
  if (columns == 0) return -1;
  window->ws_col = columns;
  return 0;
}

/* A line of the map has room for all residues, or it is broken. */
static void lines_are_as_wide_as_the_terminal(void **state)
{
  static const char residues[] = "MKLAVGSERTIDPKQNFYHW", *texts[] = {"M1A", "K2L"};
  static const struct plm_wild_type wild_type = {"wild", (const uint8_t *)residues,
                                                 sizeof residues - 1, 1, PLM_TOKENIZER_ESM};
  static const struct {
    unsigned short columns;
    bool whole;
  } rows[] = {{0, true}, {100, true}, {20, false}};
  const struct plm_score_request request = {
      .first = 1, .plot = true, .reader = {.texts = texts, .text_count = 2, .added = "score"}};
  struct inference_case c;
  (void)state;
  inference_case_open(&c, PLM_TRANSFORMER, PLM_OBJECTIVE_MLM, PLM_TOKENIZER_ESM, 32, 2);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    columns = rows[i].columns;
    captured_begin(STDOUT_FILENO);
    const plm_status status = plm_score_table(&request, &c.inference, &wild_type, NULL);
    const char *printed = captured_end();
    assert_int_equal(status, PLM_OK);
    assert_non_null(strstr(printed, "MKLAV"));
    assert_int_equal(strstr(printed, residues) != NULL, rows[i].whole);
  }
  inference_case_close(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_as_wide_as_the_terminal)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
