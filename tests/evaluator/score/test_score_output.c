/* What cannot be written is said soon, not after hours of scoring, and columns that a table lacks.
 */
#include "tests/support/harness/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "common/base/files/file.h"
#include "evaluator/score/score_output.h"
#include "evaluator/score/variant_reader.h"
#include "tests/support/harness/scratch.h"

enum { ROWS = 100000 };

static const struct plm_wild_type wild_type = {"wild", (const uint8_t *)"MKLAVG", 6, 1,
                                               PLM_TOKENIZER_ESM};

static int full; /* stdout while it is that of the device */

static void fill_stdout(void)
{
  fflush(stdout);
  full = dup(STDOUT_FILENO);
  const int device = open("/dev/full", O_WRONLY | O_CLOEXEC);
  assert_true(full >= 0 && device >= 0 && dup2(device, STDOUT_FILENO) == STDOUT_FILENO);
  close(device);
}

static void empty_stdout(void)
{
  __fpurge(stdout);
  clearerr(stdout);
  dup2(full, STDOUT_FILENO);
  close(full);
}

/* The number of rows that are taken before one fails. */
static int rows_taken(struct plm_score_output *output, struct plm_error *error)
{
  const struct plm_score_row row = {
      .fields = "M1A,", .fields_size = 4, .mutant = "M1A", .mutant_size = 3, .score = -0.5};
  double written;
  for (int i = 0; i < ROWS; i++)
    if (plm_score_output_add(output, &row, &written, error) != PLM_OK) return i;
  return ROWS;
}

/* Rows in a file or on standard output, and an object there: those that a buffer has no room for
 * tell that the device is full. */
static void a_full_device_ends_the_rows(void **state)
{
  (void)state;
  if (access("/dev/full", W_OK) != 0) skip("there is no /dev/full");
  for (int form = 0; form < 3; form++) {
    struct plm_score_output *output;
    struct plm_error error = {0};
    if (form > 0) fill_stdout();
    plm_status status = plm_score_output_open(form == 0 ? "/dev/full" : NULL, form == 1, form == 2,
                                              "mutant,score\n", 13, &output, &error);
    const int rows = rows_taken(output, &error);
    plm_score_output_close(output);
    if (form > 0) empty_stdout();
    assert_int_equal(status, PLM_OK);
    assert_int_equal(error.status, PLM_NO_SPACE);
    assert_in_range(rows, 1, ROWS / 10);
  }
}

/* Rows that are in the buffer tell so at the end. */
static void a_full_device_is_found_at_the_end(void **state)
{
  (void)state;
  if (access("/dev/full", W_OK) != 0) skip("there is no /dev/full");
  struct plm_score_output *output;
  struct plm_error error = {0};
  assert_int_equal(
      plm_score_output_open("/dev/full", false, false, "mutant,score\n", 13, &output, NULL),
      PLM_OK);
  const plm_status status = plm_score_output_finish(output, NULL, &error);
  plm_score_output_close(output);
  assert_int_equal(status, PLM_NO_SPACE);
  assert_string_equal(error.what, "cannot write /dev/full: No space left on device");
}

/* The hint names the option, and all columns that there are. */
static void missing_columns_are_named(void **state)
{
  static const struct {
    const char *mutations, *measured, *added, *what, *hint;
  } cases[] = {
      {"mutation", NULL, "score", "there is no column \"mutation\"",
       "name one with --mutations: mutant, dms, x y"},
      {"mutant", "DMS", "score", "there is no column \"DMS\"",
       "name one with --measured: mutant, dms, x y"},
      {"mutant", "dms", "score", NULL, NULL},
      {"mutant", NULL, "score", NULL, NULL},
  };
  char table[PLM_PATH_SIZE];
  (void)state;
  snprintf(table, sizeof table, "%s", scratch_path("table.csv"));
  scratch_write(table, "mutant,dms,x y\nM1A,1,2\n", 24);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_variant_reader_request request = {.csv = table,
                                                       .mutations = cases[i].mutations,
                                                       .measured = cases[i].measured,
                                                       .added = cases[i].added};
    struct plm_variant_reader *reader;
    struct plm_error error = {0};
    const plm_status status = plm_variant_reader_open(&request, &wild_type, &reader, &error);
    assert_int_equal(status, cases[i].what != NULL ? PLM_CONFIG : PLM_OK);
    if (status == PLM_OK) {
      plm_variant_reader_close(reader);
    } else {
      assert_string_equal(error.what, cases[i].what);
      assert_string_equal(error.hint, cases[i].hint);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_device_ends_the_rows),
      cmocka_unit_test(a_full_device_is_found_at_the_end),
      cmocka_unit_test(missing_columns_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
