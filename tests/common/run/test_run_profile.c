/* What is read of the first line of a profile. */
#include "common/run/run_profile.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

#define EVENTS ",\"traceEvents\":[\n"
#define FACTS "\"format\":\"plm-profile\",\"first_step\":10,\"last_step\":19"

static void the_head_is_an_object_without_events(void **state)
{
  (void)state;
  char line[] = "{\"otherData\":{\"a\":1}" EVENTS;
  cJSON *head = plm_run_profile_head(line);
  char *text = cJSON_PrintUnformatted(head);
  assert_string_equal(text, "{\"otherData\":{\"a\":1}}");
  cJSON_free(text);
  cJSON_Delete(head);
  static const char *const others[] = {
      "",
      "{\"otherData\":{}}\n",
      "{\"otherData\":{},\"traceEvents\":[",       /* the line is cut */
      "{\"otherData\":{},\"traceEvents\":[\n{}\n", /* or is not the first one */
      ("{\"otherData\":{" EVENTS),                 /* an object is left open */
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    char other[64];
    snprintf(other, sizeof other, "%s", others[i]);
    assert_null(plm_run_profile_head(other));
  }
}

/* The text is changed within its line: the bytes behind it stay. */
static void only_the_line_is_changed(void **state)
{
  (void)state;
  char line[64];
  memset(line, 'x', sizeof line);
  memcpy(line, "{\"a\":1" EVENTS, sizeof "{\"a\":1" EVENTS);
  cJSON_Delete(plm_run_profile_head(line));
  assert_memory_equal(line, "{\"a\":1}\0traceEvents\":[\n", sizeof "{\"a\":1" EVENTS - 1);
  for (size_t i = sizeof "{\"a\":1" EVENTS; i < sizeof line; i++) assert_int_equal(line[i], 'x');
}

static bool reads(const char *text, uint64_t *first, uint64_t *last)
{
  const char *path = scratch_path("profile.json");
  scratch_write(path, text, strlen(text));
  return plm_run_profile_steps(path, first, last);
}

static void the_steps_are_those_of_the_file(void **state)
{
  (void)state;
  uint64_t first = 0, last = 0;
  assert_true(reads("{\"otherData\":{" FACTS "}" EVENTS "{\"name\":\"x\"}\n]}\n", &first, &last));
  assert_true(first == 10 && last == 19);
  assert_false(plm_run_profile_steps(scratch_path("none.json"), &first, &last));
  static const char *const others[] = {
      "",
      "{\"otherData\":{" FACTS "}}\n",
      "{\"others\":{" FACTS "}" EVENTS,
      "{" FACTS EVENTS,
      "{\"otherData\":{\"format\":\"plm-trace\",\"first_step\":10,\"last_step\":19}" EVENTS,
      "{\"otherData\":{\"first_step\":10,\"last_step\":19}" EVENTS,
      "{\"otherData\":{\"format\":\"plm-profile\",\"last_step\":19}" EVENTS,
      "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":10}" EVENTS,
      "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":-1,\"last_step\":19}" EVENTS,
      "{\"otherData\":{\"format\":\"plm-profile\",\"first_step\":10,\"last_step\":1.5}" EVENTS,
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (reads(others[i], &first, &last)) fail_msg("read: %s", others[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_head_is_an_object_without_events),
      cmocka_unit_test(only_the_line_is_changed),
      cmocka_unit_test(the_steps_are_those_of_the_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
