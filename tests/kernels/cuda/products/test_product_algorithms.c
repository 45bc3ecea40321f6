/* The table of product algorithms: how many it holds, which stay when it is full, and how many are
 * tuned or imported. Each shape here is a product of one row, and stands for a number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/emulation/controls.h"
#include "tests/support/harness/cmocka_all.h"

enum { MOST = 2048, MOST_TUNED = MOST / 2, WIDEST = 5000 };

static void *buffer; /* of zeros: weights, and what comes out */

static struct plm_ops *open_ops(uint64_t seed)
{
  struct plm_ops *ops;
  plm_emulation_tuning(seed);
  assert_int_equal(plm_ops_cuda_open(PLM_PRECISION_FP32, 0, &ops, NULL), PLM_OK);
  assert_int_equal(ops->allocate(ops, 2 * WIDEST * sizeof(float), &buffer, NULL), PLM_OK);
  return ops;
}

static void close_ops(struct plm_ops *ops)
{
  assert_int_equal(ops->synchronize(ops, NULL), PLM_OK);
  ops->release(ops, buffer);
  ops->close(ops);
}

/* Multiplies the shapes from `first` to `last`. Returns how many have been tuned since opening. */
static uint64_t multiply(struct plm_ops *ops, bool tuning, int64_t first, int64_t last)
{
  struct plm_ops_tuned tuned;
  float *out = (float *)buffer + WIDEST;
  ops->tune(ops, tuning, NULL);
  for (int64_t n = first; n <= last; n++)
    ops->linear_forward(ops, out, buffer, buffer, NULL, 1, 1, n);
  ops->tune(ops, false, &tuned);
  return tuned.products;
}

/* The lines behind the first one, which names the library; the caller frees it. */
static char *exported(struct plm_ops *ops, int *lines)
{
  char *text;
  assert_int_equal(ops->export_algorithms(ops, &text, NULL), PLM_OK);
  *lines = -1;
  for (const char *at = text; *at != '\0'; at++) *lines += *at == '\n';
  return text;
}

/* Of the lines of `of`, those are in `text` whose shape is one of `first` to `last`. */
static void has_lines(const char *text, char *of, int64_t first, int64_t last)
{
  strtok(of, "\n");
  for (const char *line; (line = strtok(NULL, "\n")) != NULL;) {
    const int64_t n = strtol(line + 2, NULL, 10);
    if ((strstr(text, line) != NULL) != (n >= first && n <= last)) fail_msg("%s", line);
  }
}

/* When the table is full, those that were measured stay, and are not measured again. */
static void a_full_table_keeps_what_was_tuned(void **state)
{
  (void)state;
  enum { TUNED = 10 };
  struct plm_ops *ops = open_ops(3);
  int before, after;
  assert_int_equal(multiply(ops, true, 21, 20 + TUNED), TUNED);
  char *kept = exported(ops, &before);
  assert_int_equal(before, TUNED);
  for (int turn = 0; turn < 2; turn++) {
    multiply(ops, false, 1000, 1000 + MOST - TUNED); /* one more than there is room for */
    char *now = exported(ops, &after);
    assert_string_equal(now, kept);
    free(now);
    assert_int_equal(multiply(ops, true, 21, 20 + TUNED), TUNED);
  }
  assert_int_equal(multiply(ops, true, 1001, 1001), TUNED + 1); /* it was only proposed */
  free(kept);
  free(exported(ops, &after));
  assert_int_equal(after, TUNED + 1);
  close_ops(ops);
}

/* Half of the table may be tuned. An import changes those that are there, and adds up to that. */
static void half_of_the_table_may_be_tuned(void **state)
{
  (void)state;
  enum { OWN = 30 };
  struct plm_ops *ops = open_ops(3);
  int lines;
  assert_int_equal(multiply(ops, true, 1, MOST_TUNED - 1), MOST_TUNED - 1);
  assert_int_equal(multiply(ops, true, 3000, 3000), MOST_TUNED);
  assert_int_equal(multiply(ops, true, 3001, 3005), MOST_TUNED);
  char *all = exported(ops, &lines), *got;
  assert_int_equal(lines, MOST_TUNED);
  close_ops(ops);

  ops = open_ops(4);
  multiply(ops, false, 1, 1);
  multiply(ops, false, MOST_TUNED - 1, MOST_TUNED - 1);
  multiply(ops, true, 2001, 2000 + OWN);
  multiply(ops, true, 2, 2);
  char *own = exported(ops, &lines);
  assert_int_equal(lines, OWN + 1);
  for (int turn = 0; turn < 2; turn++) {
    assert_int_equal(ops->import_algorithms(ops, all, NULL), PLM_OK);
    got = exported(ops, &lines);
    assert_int_equal(lines, MOST_TUNED);
    assert_int_equal(multiply(ops, true, 3001, 3001), OWN + 1);
    free(got);
  }
  got = exported(ops, &lines);
  has_lines(got, all, 1, MOST_TUNED - OWN);
  free(got);
  assert_int_equal(ops->import_algorithms(ops, own, NULL), PLM_OK);
  got = exported(ops, &lines);
  assert_int_equal(lines, MOST_TUNED);
  has_lines(got, own, 0, WIDEST);
  free(own);
  free(got);
  free(all);
  close_ops(ops);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_table_keeps_what_was_tuned),
      cmocka_unit_test(half_of_the_table_may_be_tuned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
