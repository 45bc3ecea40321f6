/* The trace of a rank: its whole text, and what is said if it cannot be written. */
#include "trainer/ranks/rank_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/files/file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

static struct plm_rank_trace *opened(uint32_t rank)
{
  struct plm_rank_trace *trace = NULL;
  setenv("PLM_RANK_TRACE", scratch_directory(), 1);
  assert_int_equal(plm_rank_trace_open(rank, &trace, NULL), PLM_OK);
  assert_non_null(trace);
  return trace;
}

static void expect_text(const char *name, const char *expected)
{
  char *text;
  size_t size;
  assert_int_equal(plm_file_read(scratch_path(name), 1 << 16, &text, &size, NULL), PLM_OK);
  assert_string_equal(text, expected);
  free(text);
}

static void events_become_an_array(void **state)
{
  (void)state;
  struct plm_rank_trace *trace = opened(3);
  plm_rank_trace_add(trace, PLM_TRACE_WAITS, "backward", 7, 1234567, 1236000);
  plm_rank_trace_add(trace, PLM_TRACE_MOVES + 1, "weights on rail", 0, 2000000, 2000000);
  plm_rank_trace_close(trace);
  expect_text("rank-3.json",
              "[\n{\"name\": \"backward 7\", \"ph\": \"X\", \"pid\": 3, \"tid\": 1, "
              "\"ts\": 1234.567, \"dur\": 1.433},\n"
              "{\"name\": \"weights on rail 0\", \"ph\": \"X\", \"pid\": 3, \"tid\": 3, "
              "\"ts\": 2000.000, \"dur\": 0.000}\n]\n");
  plm_rank_trace_close(opened(0));
  expect_text("rank-0.json", "[]\n");
}

static void nobody_asks_for_one(void **state)
{
  (void)state;
  struct plm_rank_trace *trace = (struct plm_rank_trace *)state;
  unsetenv("PLM_RANK_TRACE");
  assert_int_equal(plm_rank_trace_open(1, &trace, NULL), PLM_OK);
  assert_null(trace);
  trace = (struct plm_rank_trace *)state;
  setenv("PLM_RANK_TRACE", "", 1);
  assert_int_equal(plm_rank_trace_open(1, &trace, NULL), PLM_OK);
  assert_null(trace);
  plm_rank_trace_add(NULL, PLM_TRACE_WAITS, "backward", 7, 1, 2);
  plm_rank_trace_close(NULL);
}

static void it_says_why_it_cannot_be_written(void **state)
{
  (void)state;
  struct plm_rank_trace *trace = (struct plm_rank_trace *)state;
  struct plm_error error = {0};
  char folder[4096], expected[4200];
  snprintf(folder, sizeof folder, "%s", scratch_path("none"));
  setenv("PLM_RANK_TRACE", folder, 1);
  assert_int_equal(plm_rank_trace_open(2, &trace, &error), PLM_NOT_FOUND);
  assert_null(trace);
  snprintf(expected, sizeof expected,
           "cannot write the trace %.300s/rank-2.json: No such file or directory", folder);
  assert_string_equal(error.what, expected);

  /* "/rank-2.json" takes 12 bytes, and the end of the string one */
  memset(folder, 'x', sizeof folder);
  folder[4096 - 13] = '\0';
  setenv("PLM_RANK_TRACE", folder, 1);
  assert_int_equal(plm_rank_trace_open(2, &trace, &error), PLM_IO); /* ENAMETOOLONG */
  assert_int_equal(plm_rank_trace_open(10, &trace, &error), PLM_CONFIG);
  assert_string_equal(error.what, "PLM_RANK_TRACE names a path that is too long");
  assert_null(trace);
  unsetenv("PLM_RANK_TRACE");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(events_become_an_array),
      cmocka_unit_test(nobody_asks_for_one),
      cmocka_unit_test(it_says_why_it_cannot_be_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
