/* TensorBoard reads the event files: scalars come back, and after a resume the steps after the
 * resumed one are dropped. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/metrics/metrics.h"
#include "tests/support/harness/scratch.h"

static char python[4096];

/* Writes the events of one start: "loss" at steps first..last, with the value 100 * start + step.
 */
static void write_start(const char *directory, int64_t resumed, int start, int first, int last)
{
  struct plm_error error = {0};
  struct plm_tensorboard *board;
  assert_int_equal(plm_tensorboard_open(directory, resumed, &board, &error), PLM_OK);
  for (int step = first; step <= last; step++)
    assert_int_equal(
        plm_tensorboard_scalar(board, step, "trainer/loss", 100.0 * start + step, &error), PLM_OK);
  plm_tensorboard_close(board);
}

static void tensorboard_reads_what_was_written(void **state)
{
  (void)state;
  const char *directory = scratch_path("board");
  write_start(directory, -1, 0, 1, 3000); /* more than one buffer */
  write_start(directory, 2990, 1, 2991, 2995);
  char command[3 * 4096], line[256] = "";
  snprintf(command, sizeof command, "'%s' '%s/tests/common/metrics/read_events.py' '%s'", python,
           getenv("PLM_ROOT") != NULL ? getenv("PLM_ROOT") : ".", directory);
  FILE *reader = popen(command, "r");
  assert_non_null(reader);
  assert_non_null(fgets(line, sizeof line, reader));
  assert_int_equal(pclose(reader), 0);
  /* tag, count, last step, its value, value at the resumed step */
  assert_string_equal(line, "trainer/loss 2995 2995 3095.0 2990.0\n");
}

int main(void)
{
  const char *build = getenv("PLM_BUILD") != NULL ? getenv("PLM_BUILD") : "build";
  const char *venv = getenv("PLM_VENV");
  if (venv != NULL)
    snprintf(python, sizeof python, "%s/bin/python", venv);
  else
    snprintf(python, sizeof python, "%s/venv/bin/python", build);
  FILE *there = venv != NULL && venv[0] == '\0' ? NULL : fopen(python, "r");
  if (there == NULL) {
    printf("no Python environment: run `make venv`\n");
    return 77;
  }
  fclose(there);
  const struct CMUnitTest tests[] = {cmocka_unit_test(tensorboard_reads_what_was_written)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
