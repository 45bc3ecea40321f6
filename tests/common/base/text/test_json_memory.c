/* common/base/text/json while memory is lacking: what the program makes is whole, and a text that
 * cannot be parsed for lack of memory is not called damaged. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"
#include "tests/support/harness/failing_memory.h"

static const char whole[] =
    "{\"name\":\"a\",\"list\":[1,{\"inner\":true}],\"raw\":12345678901234567}";

static cJSON *make(void)
{
  cJSON *json = cJSON_CreateObject(), *inner = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "name", "a");
  cJSON *list = cJSON_AddArrayToObject(json, "list");
  plm_json_append(list, cJSON_CreateNumber(1));
  cJSON_AddBoolToObject(inner, "inner", true);
  plm_json_append(list, inner);
  cJSON_AddRawToObject(json, "raw", "12345678901234567");
  return json;
}

static plm_status print(void *context, struct plm_error *error)
{
  char *(*printer)(const cJSON *json, bool indented) = *(void **)context;
  cJSON *json = make();
  char *text = printer(json, false);
  (void)error;
  cJSON_Delete(json);
  const long at = checked_memory_pause();
  assert_string_equal(text, whole);
  checked_memory_resume(at);
  free(text);
  return PLM_OK;
}

static void nothing_is_left_out(void **state)
{
  (void)state;
  void *printers[] = {(void *)plm_json_bytes, (void *)plm_json_text};
  for (size_t i = 0; i < 2; i++) failing_memory_try(print, &printers[i], 0);
}

static plm_status parse(void *context, struct plm_error *error)
{
  static const struct plm_json_limits limits = {.values = 100, .depth = 5};
  cJSON *json = NULL;
  PLM_TRY(plm_json_parse(context, strlen(context), &limits, &json, error));
  cJSON_Delete(json);
  return PLM_OK;
}

/* Of the allocations of a text that is parsed, each that fails is an error. */
static void parsing_reports_by_itself(void **state)
{
  (void)state;
  char text[] = "{\"name\":\"a\",\"list\":[1,2]}";
  failing_memory_try(parse, text, 5);
  struct plm_error error;
  checked_memory_fail(1);
  assert_int_equal(parse(text, &error), PLM_NO_MEMORY);
  checked_memory_fail(0);
  assert_null(plm_json_line(text));
  checked_memory_pause();
  assert_true(plm_json_no_memory());
  assert_null(plm_json_line("{"));
  assert_false(plm_json_no_memory());
  checked_memory_fail(0);
  cJSON *json = make(); /* after parsing, allocations are small again */
  checked_memory_pause();
  char *bytes = plm_json_bytes(json, false);
  assert_string_equal(bytes, whole);
  free(bytes);
  cJSON_Delete(json);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_left_out),
      cmocka_unit_test(parsing_reports_by_itself),
  };
  plm_log_init("t", PLM_LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
