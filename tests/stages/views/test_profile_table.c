/* The table of a profile, compared as a whole, and what is said about files that are none. */
#include "stages/views/profile_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/views/profile_events.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

#define HEAD                                                                                   \
  "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":10,\"last_step\":11,\"ranks\":2," \
  "\"threads\":1,\"device\":\"cpu\",\"isa\":\"avx2\",\"precision\":\"fp32\","                  \
  "\"product_flops_per_second\":2e9,\"copy_bytes_per_second\":1e9},\"traceEvents\":[\n"
#define EVENT(name, cat, pid, tid, ts, dur, args)                                        \
  "{\"name\":\"" name "\",\"cat\":\"" cat "\",\"ph\":\"X\",\"pid\":" pid ",\"tid\":" tid \
  ",\"ts\":" ts ",\"dur\":" dur ",\"args\":{" args "}},\n"
#define TAIL \
  "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}}\n]}\n"

/* Two steps of rank 0 and one of rank 1, whose other step the file lacks. The events are in no
 * order. */
static const char two_ranks[] =
    HEAD EVENT("linear_forward", "operator", "0", "0", "1000", "4000",
               "\"shape\":\"4 x 3 x 2\",\"bytes\":1000000,\"flops\":4000000")
        EVENT("step 10", "step", "0", "0", "0", "10000", "")
            EVENT("data wait", "data", "0", "0", "0", "1000", "")
                EVENT("copy", "copy", "0", "0", "2000", "500", "\"bytes\":8")
                    EVENT("other", "other", "0", "0", "5000", "5000", "")
                        EVENT("micro-batch 0", "part", "0", "1", "1000", "4000", "")
                            EVENT("take a snapshot", "checkpoint", "0", "0", "10000", "250", "")
                                EVENT("step 11", "step", "0", "0", "11000", "10000", "")
                                    EVENT("linear_forward", "operator", "0", "0", "11000", "2000",
                                          "\"shape\":\"8 x 3 x 2\",\"flops\":8000000")
                                        EVENT("add", "operator", "0", "0", "13000", "8000",
                                              "\"shape\":\"8\",\"bytes\":2000000")
                                            EVENT("weights on rail 3", "exchange", "1", "5", "500",
                                                  "2000", "\"bytes\":1000000")
                                                EVENT("step 10", "step", "1", "0", "0", "10000", "")
                                                    EVENT("weights on rail 3", "exchange", "1", "0",
                                                          "0", "10000", "")
                                                        EVENT("write checkpoint 9", "checkpoint",
                                                              "0", "4", "0", "900", "") TAIL;

static plm_status read_text(const char *text, struct plm_profile_view view,
                            struct plm_profile_table *table, struct plm_error *error)
{
  FILE *file = must(fmemopen((char *)text, strlen(text), "r"));
  const plm_status status = plm_profile_table_read(file, &view, table, error);
  fclose(file);
  return status;
}

static void read_table(const char *text, struct plm_profile_view view,
                       struct plm_profile_table *table)
{
  struct plm_error error = {0};
  if (read_text(text, view, table, &error) != PLM_OK) fail_msg("%s", error.what);
}

static void expect_print(const char *text, struct plm_profile_view view, const char *expected)
{
  struct plm_profile_table table;
  struct plm_text out = {0};
  read_table(text, view, &table);
  plm_profile_table_print(&table, &out);
  assert_string_equal(out.data, expected);
  plm_text_deinit(&out);
  plm_profile_table_deinit(&table);
}

static void times_are_means_of_steps_and_ranks(void **state)
{
  (void)state;
  expect_print(
      two_ranks, (struct plm_profile_view){.rank = -1},
      "steps 10 to 11 of 2 ranks on cpu (avx2), fp32, 1 thread: 10.00 ms a step\n"
      "measured limits: 2.0 GFLOP/s in a large product, 1.0 GB/s in a copy\n"
      "\n"
      "in a step                   calls         ms    share   GFLOP/s      GB/s  of limit\n"
      "weights on rail               0.3       3.33   33.3 %         -         -         -\n"
      "add                           0.3       2.67   26.7 %         -       0.2      25 %\n"
      "linear_forward                0.7       2.00   20.0 %       2.0       0.2     100 %\n"
      "other                         0.3       1.67   16.7 %         -         -         -\n"
      "data wait                     0.3       0.33    3.3 %         -         -         -\n"
      "all                                    10.00  100.0 %\n"
      "\n"
      "beside a step               calls         ms      GB/s\n"
      "weights on rail               0.3       0.67       0.5\n"
      "write checkpoint              0.3       0.30         -\n"
      "take a snapshot               0.3       0.08         -\n");
}

static void one_rank_and_its_shapes(void **state)
{
  (void)state;
  expect_print(
      two_ranks, (struct plm_profile_view){.shapes = true, .rank = 0},
      "steps 10 to 11 of 2 ranks on cpu (avx2), fp32, 1 thread: 10.00 ms a step\n"
      "measured limits: 2.0 GFLOP/s in a large product, 1.0 GB/s in a copy\n"
      "\n"
      "in a step                   calls         ms    share   GFLOP/s      GB/s  of limit\n"
      "add 8                         0.5       4.00   40.0 %         -       0.2      25 %\n"
      "other                         0.5       2.50   25.0 %         -         -         -\n"
      "linear_forward 4 x 3 x 2      0.5       2.00   20.0 %       1.0       0.2      50 %\n"
      "linear_forward 8 x 3 x 2      0.5       1.00   10.0 %       4.0         -     200 %\n"
      "data wait                     0.5       0.50    5.0 %         -         -         -\n"
      "all                                    10.00  100.0 %\n"
      "\n"
      "beside a step               calls         ms      GB/s\n"
      "write checkpoint              0.5       0.45         -\n"
      "take a snapshot               0.5       0.12         -\n");
}

/* On a device, its tracks say what the step consists of and what is copied; of the host, there is
 * only what it does between steps. What another track does meanwhile does not split an event from
 * its parts. */
static void a_device_has_its_own_track(void **state)
{
  (void)state;
  static const char text[] =
      "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":3,\"last_step\":3,\"ranks\":1,"
      "\"incomplete\":true},"
      "\"traceEvents\":[\n" EVENT("step 3", "step", "0", "0", "0", "4000",
                                  "") EVENT("add", "launch", "0", "0", "0", "10", "\"bytes\":8")
          EVENT("upload", "copy", "0", "0", "10", "20",
                "\"bytes\":8") EVENT("synchronize", "wait", "0", "0", "30", "3970",
                                     "") EVENT("synchronize", "wait", "0", "0", "4500", "200", "")
              EVENT("upload", "copy", "0", "0", "4700", "40",
                    "\"bytes\":8") EVENT("idle", "idle", "0", "2", "0", "1000", "")
                  EVENT("upload", "copy", "0", "2", "1000", "500", "\"bytes\":8")
                      EVENT("part", "operator", "0", "2", "1500", "100", "")
                          EVENT("add", "operator", "0", "2", "1500", "2500", "\"bytes\":8")
                              EVENT("part", "operator", "0", "2", "1500", "200", "")
                                  EVENT("upload", "copy", "0", "2", "4710", "30", "\"bytes\":8")
                                      EVENT("download_beside", "copy", "0", "3", "1600", "100", "")
                                          EVENT("part", "operator", "0", "2", "2000", "100", "")
                                              TAIL;
  expect_print(
      text, (struct plm_profile_view){.rank = -1},
      "step 3 on an unknown device: 4.00 ms a step\n"
      "incomplete: there was no memory for some of the events\n"
      "\n"
      "in a step                   calls         ms    share   GFLOP/s      GB/s  of limit\n"
      "add                             1       2.50   62.5 %         -       0.0         -\n"
      "idle                            1       1.00   25.0 %         -         -         -\n"
      "upload                          1       0.50   12.5 %         -       0.0         -\n"
      "all                                     4.00  100.0 %\n"
      "\n"
      "beside a step               calls         ms      GB/s\n"
      "synchronize                     1       0.20         -\n"
      "download_beside                 1       0.10         -\n"
      "upload                          1       0.03       0.0\n");
}

/* Only what is known of the machine is told. */
static void a_machine_may_be_known_in_part(void **state)
{
  (void)state;
  static const struct {
    struct plm_profile_table table;
    const char *head;
  } cases[] = {
      {{.steps = 1, .precision = "fp32"}, "step 0 on an unknown device, fp32: "},
      {{.steps = 1, .device = "cpu", .isa = "avx2"}, "step 0 on cpu (avx2): "},
      {{.steps = 1, .device = "cpu", .threads = 1}, "step 0 on cpu, 1 thread: "},
      {{.steps = 1, .device = "cpu", .threads = 2, .ranks = 1}, "step 0 on cpu, 2 threads: "}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_text text = {0};
    plm_profile_table_print(&cases[i].table, &text);
    if (strncmp(text.data, cases[i].head, strlen(cases[i].head)) != 0) fail_msg("%s", text.data);
    plm_text_deinit(&text);
  }
}

static void json_has_the_same_numbers(void **state)
{
  (void)state;
  struct plm_profile_table table;
  struct plm_text out = {0};
  read_table(two_ranks, (struct plm_profile_view){.rank = 1}, &table);
  plm_profile_table_json(&table, &out);
  assert_string_equal(
      out.data,
      "{\"first_step\":10,\"last_step\":11,\"ranks\":2,\"device\":\"cpu\",\"precision\":\"fp32\","
      "\"step_ms\":10,\"limit_flops_per_second\":2000000000,\"limit_bytes_per_second\":1000000000,"
      "\"in_a_step\":[{\"name\":\"weights on rail\",\"kind\":\"exchange\",\"calls\":1,\"ms\":10,"
      "\"share\":1,\"flops_per_second\":null,\"bytes_per_second\":null,\"of_limit\":null}],"
      "\"beside_a_step\":[{\"name\":\"weights on rail\",\"kind\":\"exchange\",\"calls\":1,\"ms\":2,"
      "\"share\":0.2,\"flops_per_second\":null,\"bytes_per_second\":500000000,\"of_limit\":0.5}]}"
      "\n");
  plm_text_deinit(&out);
  plm_profile_table_deinit(&table);
}

#define FIRST_LINE "this is no profile of plm-pipeline: its first line is not that of a profile"
#define CUT "this is no profile of plm-pipeline: it ends before its last line"
#define NO_EVENT "this is no profile of plm-pipeline: a line is not an event as JSON"
static void what_is_no_profile_is_refused(void **state)
{
  (void)state;
  static const struct {
    const char *text, *why;
    int64_t rank;
    plm_status status;
  } cases[] = {
      {"\n", FIRST_LINE, -1, PLM_FORMAT},
      {"[]", FIRST_LINE, -1, PLM_FORMAT},
      {"{\"otherData\":{\"format\":\"plm-profile\"},\"traceEvents\":[]}", FIRST_LINE, -1,
       PLM_FORMAT},
      {"{\"otherData\":{,\"traceEvents\":[\n", FIRST_LINE, -1, PLM_FORMAT},
      {"{\"otherData\":{},\"traceEvents\":[\n]}\n",
       "this is no profile of plm-pipeline: otherData.format is not \"plm-profile\"", -1,
       PLM_FORMAT},
      {"{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":1,\"last_step\":2,\"ranks\":0},"
       "\"traceEvents\":[\n]}\n",
       "this is no profile of plm-pipeline: otherData has no first_step, last_step or ranks", -1,
       PLM_FORMAT},
      {HEAD, CUT, -1, PLM_FORMAT},
      {HEAD EVENT("step 10", "step", "0", "0", "0", "1", ""), CUT, -1, PLM_FORMAT},
      {HEAD "{\"name\":\n]}\n", NO_EVENT, -1, PLM_FORMAT},
      {HEAD "]", NO_EVENT, -1, PLM_FORMAT},
      {HEAD TAIL, "this is no profile of plm-pipeline: it has no step", -1, PLM_FORMAT},
      {HEAD "{\"name\":\"step 1\",\"ph\":\"X\",\"cat\":\"step\",\"pid\":0,\"tid\":0,\"ts\":1}\n",
       "this is no profile of plm-pipeline: an event has no place or no time", -1, PLM_FORMAT},
      {HEAD EVENT("step 10", "step", "0", "0", "0", "-1", "") TAIL,
       "this is no profile of plm-pipeline: an event has no place or no time", -1, PLM_FORMAT},
      {two_ranks, "the profile has no rank 2; its ranks are 0 to 1", 2, PLM_USAGE},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_profile_table table;
    struct plm_error error = {0};
    const struct plm_profile_view view = {.rank = cases[i].rank};
    assert_int_equal(read_text(cases[i].text, view, &table, &error), cases[i].status);
    assert_string_equal(error.what, cases[i].why);
    plm_profile_table_deinit(&table);
  }
}

static void a_line_that_is_too_long_is_refused(void **state)
{
  (void)state;
  struct plm_profile_table table;
  struct plm_error error = {0};
  struct plm_text text = {0};
  plm_text_printf(&text, "%s%70000s\n]}\n", HEAD, "");
  assert_int_equal(read_text(text.data, (struct plm_profile_view){.rank = -1}, &table, &error),
                   PLM_FORMAT);
  assert_string_equal(error.what, "this is no profile of plm-pipeline: a line is too long, but the "
                                  "trainer writes an event in each");
  plm_text_deinit(&text);
  plm_profile_table_deinit(&table);
}

/* The numbers at the end of names do not count. */
static void many_events_are_added_up(void **state)
{
  (void)state;
  enum { EVENTS = 20000, NAMES = 100 };
  struct plm_profile_table table;
  struct plm_text text = {0};
  plm_text_puts(&text, HEAD EVENT("step 10", "step", "0", "0", "0", "20000", ""));
  for (int i = 0; i < EVENTS; i++)
    plm_text_printf(&text,
                    "{\"name\":\"op_%d %d\",\"cat\":\"operator\",\"ph\":\"X\",\"pid\":0,\"tid\":0,"
                    "\"ts\":%d,\"dur\":1},\n",
                    i % NAMES, i, i);
  plm_text_puts(&text, TAIL);
  read_table(text.data, (struct plm_profile_view){.rank = -1}, &table);
  assert_int_equal(table.in.count, NAMES);
  for (size_t i = 0; i < NAMES; i++) {
    assert_int_equal(table.in.rows[i].calls, EVENTS / NAMES);
    assert_int_equal(table.in.rows[i].ns, 1000 * EVENTS / NAMES);
  }
  plm_text_deinit(&text);
  plm_profile_table_deinit(&table);
}

static void whole_numbers_have_a_limit(void **state)
{
  static const struct {
    const char *json;
    int64_t value;
  } rows[] = {{"{\"n\":0}", 0},   {"{\"n\":9}", 9},     {"{\"n\":10}", -1},    {"{\"n\":9.5}", -1},
              {"{\"n\":-1}", -1}, {"{\"n\":-0.5}", -1}, {"{\"n\":\"1\"}", -1}, {"{}", -1}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cJSON *item = cJSON_Parse(rows[i].json);
    assert_non_null(item);
    assert_int_equal(plm_profile_whole(item, "n", 10), rows[i].value);
    cJSON_Delete(item);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(times_are_means_of_steps_and_ranks),
      cmocka_unit_test(one_rank_and_its_shapes),
      cmocka_unit_test(a_device_has_its_own_track),
      cmocka_unit_test(a_machine_may_be_known_in_part),
      cmocka_unit_test(json_has_the_same_numbers),
      cmocka_unit_test(what_is_no_profile_is_refused),
      cmocka_unit_test(a_line_that_is_too_long_is_refused),
      cmocka_unit_test(many_events_are_added_up),
      cmocka_unit_test(whole_numbers_have_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
