/* Which numbers of a profile count: both sides of each bound, in its head and in its events. And
 * the whole table, for people and as JSON. */
#include <stdio.h>
#include <string.h>

#include "stages/views/profile_events.h"
#include "stages/views/profile_table.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

/* The one event of a profile, in which this follows its name. */
static plm_status read_one(const char *values, struct plm_profile_events *events,
                           struct plm_error *error)
{
  char text[600];
  const int size = snprintf(
      text, sizeof text, "{\"ph\":\"X\",\"name\":\"add\",\"cat\":\"operator\",%s},\n]}\n", values);
  FILE *file = must(fmemopen(text, (size_t)size, "r"));
  *events = (struct plm_profile_events){0};
  const plm_status status = plm_profile_events_read(file, events, error);
  fclose(file);
  return status;
}

static void an_event_has_a_place_and_a_time(void **state)
{
  static const struct {
    const char *values;
    bool taken;
  } rows[] = {
      {"\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":0", true},
      {"\"pid\":65535,\"tid\":999,\"ts\":9e14,\"dur\":1.5", true},
      {"\"pid\":65536,\"tid\":0,\"ts\":0,\"dur\":0", false},
      {"\"pid\":-1,\"tid\":0,\"ts\":0,\"dur\":0", false},
      {"\"pid\":0.5,\"tid\":0,\"ts\":0,\"dur\":0", false},
      {"\"tid\":0,\"ts\":0,\"dur\":0", false},
      {"\"pid\":0,\"tid\":1000,\"ts\":0,\"dur\":0", false},
      {"\"pid\":0,\"tid\":-1,\"ts\":0,\"dur\":0", false},
      {"\"pid\":0,\"ts\":0,\"dur\":0", false},
      {"\"pid\":0,\"tid\":0,\"ts\":-1,\"dur\":0", false},
      {"\"pid\":0,\"tid\":0,\"ts\":-0.0001,\"dur\":0", false},
      {"\"pid\":0,\"tid\":0,\"ts\":1e15,\"dur\":0", false},
      {"\"pid\":0,\"tid\":0,\"dur\":0", false},
      {"\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":-1", false},
      {"\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":1e15", false},
      {"\"pid\":0,\"tid\":0,\"ts\":0", false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_profile_events events;
    struct plm_error error = {0};
    const plm_status status = read_one(rows[i].values, &events, &error);
    if (status != (rows[i].taken ? PLM_OK : PLM_FORMAT) || events.count != rows[i].taken)
      fail_msg("%s: status %d, \"%s\"", rows[i].values, (int)status, error.what);
    if (!rows[i].taken) assert_non_null(strstr(error.what, "an event has no place or no time"));
    if (i == 1) {
      assert_true(events.list[0].rank == 65535 && events.list[0].track == 999);
      assert_true(events.list[0].begin_ns == 900000000000000000 &&
                  events.list[0].end_ns == 900000000000000000 + 1500);
    }
    plm_profile_events_deinit(&events);
  }
}

static void work_is_a_positive_number(void **state)
{
  static const struct {
    const char *bytes;
    double counted;
  } rows[] = {{"0.5", 0.5}, {"9e29", 9e29}, {"0", 0}, {"-1", 0}, {"1e30", 0}, {"\"1\"", 0}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct plm_profile_events events;
    struct plm_error error = {0};
    char values[120];
    snprintf(values, sizeof values,
             "\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":0,\"args\":{\"bytes\":%s,\"flops\":7}",
             rows[i].bytes);
    must_work(read_one(values, &events, &error), &error);
    assert_true(events.list[0].bytes == rows[i].counted && events.list[0].flops == 7);
    plm_profile_events_deinit(&events);
  }
}

/* Names that end with the number of something count together. Equal words are kept once. */
static void a_number_at_the_end_of_a_name_does_not_count(void **state)
{
  static const char *const rows[][2] = {
      {"step 10", "step"}, {"step10", "step10"}, {"10", "10"}, {" 10", " 10"}, {"a 1", "a"},
      {"a ", "a "},        {"a 1 b", "a 1 b"},   {"", ""},     {"a  7", "a "}};
  (void)state;
  char text[2000] = "";
  size_t used = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int twice = 0; twice < 2; twice++)
      used += (size_t)snprintf(text + used, sizeof text - used,
                               "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":0,\"tid\":0,\"ts\":%zu,"
                               "\"dur\":0},\n",
                               rows[i][0], i);
  used += (size_t)snprintf(text + used, sizeof text - used, "]}\n");
  struct plm_profile_events events = {0};
  struct plm_error error = {0};
  FILE *file = must(fmemopen(text, used, "r"));
  must_work(plm_profile_events_read(file, &events, &error), &error);
  fclose(file);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_string_equal(events.list[2 * i].name, rows[i][1]);
    assert_ptr_equal(events.list[2 * i].name, events.list[2 * i + 1].name);
  }
  plm_profile_events_deinit(&events);
}

static void a_head_has_steps_and_ranks(void **state)
{
  static const struct {
    const char *facts;
    bool taken;
    unsigned threads;
  } rows[] = {
      {"\"first_step\":0,\"last_step\":0,\"ranks\":1", true, 0},
      {"\"first_step\":1,\"last_step\":2,\"ranks\":65535,\"threads\":65535", true, 65535},
      {"\"first_step\":1,\"last_step\":2,\"ranks\":1,\"threads\":65536", true, 0},
      {"\"first_step\":1,\"last_step\":2,\"ranks\":1,\"threads\":-3", true, 0},
      {"\"first_step\":-1,\"last_step\":2,\"ranks\":1", false, 0},
      {"\"first_step\":1,\"last_step\":-2,\"ranks\":1", false, 0},
      {"\"first_step\":1,\"last_step\":2,\"ranks\":0", false, 0},
      {"\"first_step\":1,\"last_step\":2,\"ranks\":65536", false, 0},
      {"\"first_step\":1,\"last_step\":1e15,\"ranks\":1", false, 0},
      {"\"last_step\":2,\"ranks\":1", false, 0},
      {"\"first_step\":1,\"ranks\":1", false, 0},
      {"\"first_step\":1,\"last_step\":2", false, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[600];
    const int size =
        snprintf(text, sizeof text,
                 "{\"otherData\":{\"format\":\"plm-profile\",%s},\"traceEvents\":[\n"
                 "{\"ph\":\"X\",\"name\":\"step 1\",\"cat\":\"step\",\"pid\":0,\"tid\":0,\"ts\":0,"
                 "\"dur\":5},\n]}\n",
                 rows[i].facts);
    struct plm_profile_table table = {0};
    struct plm_error error = {0};
    FILE *file = must(fmemopen(text, (size_t)size, "r"));
    const struct plm_profile_view view = {.rank = -1};
    const plm_status status = plm_profile_table_read(file, &view, &table, &error);
    fclose(file);
    if (status != (rows[i].taken ? PLM_OK : PLM_FORMAT))
      fail_msg("%s: status %d, \"%s\"", rows[i].facts, (int)status, error.what);
    if (!rows[i].taken) {
      assert_non_null(strstr(error.what, "otherData has no first_step, last_step or ranks"));
      continue;
    }
    assert_int_equal(table.threads, rows[i].threads);
    plm_profile_table_deinit(&table);
  }
}

/* Both forms of tables in which every value is another one: rows with and without work, a part of
 * a call, hundreds of them, and names of 60 and more characters. The limits are known or not. */
static void each_value_has_its_place(void **state)
{
  struct plm_profile_row in[] = {{"linear", "operator", 24, 30000000, 6e7, 3e8},
                                 {"copy", "copy", 4, 20000000, 1.5e7, 0},
                                 {"a name of 61 characters, which is longer than the column may be",
                                  "other", 402, 6000000, 0, 5e6},
                                 {"nothing", "part", 1, 0, 7, 9},
                                 {"add", "operator", 398, 4000000, 0, 0}},
                         beside[] = {{"weights on rail", "exchange", 10, 70000000, 2e8, 0},
                                     {"write", "checkpoint", 6, 8000000, 0, 4e6}};
  struct plm_profile_table table = {.device = "cuda",
                                    .isa = "sm_90",
                                    .precision = "bf16",
                                    .first_step = 12,
                                    .last_step = 14,
                                    .ranks = 2,
                                    .threads = 5,
                                    .flops_limit = 4e10,
                                    .bytes_limit = 3e9,
                                    .steps = 4,
                                    .ns = 80000000,
                                    .in = {in, 5},
                                    .beside = {beside, 2}};
  struct plm_text text = {0};
  (void)state;
  for (int known = 4; known >= 0; known--) { /* the least, both limits, the one, the other, none */
    table.flops_limit = known & 2 ? 4e10 : 0;
    table.bytes_limit = known & 1 ? 3e9 : 0;
    if (known == 4) table.flops_limit = table.bytes_limit = 1;
    if (known < 2) table.beside.count = 0;
    if (known == 1) table.in.count = 1; /* a narrow one */
    plm_profile_table_print(&table, &text);
    plm_text_puts(&text, "\n");
    plm_profile_table_json(&table, &text);
    plm_text_puts(&text, "\n");
  }
  expected_file("stages/views/profile/tables", text.data);
  plm_text_deinit(&text);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_event_has_a_place_and_a_time),
      cmocka_unit_test(work_is_a_positive_number),
      cmocka_unit_test(a_number_at_the_end_of_a_name_does_not_count),
      cmocka_unit_test(a_head_has_steps_and_ranks),
      cmocka_unit_test(each_value_has_its_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
