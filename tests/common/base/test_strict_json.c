/* Strict JSON: the number of values is bounded before cJSON stores any of them. What it refuses for
 * other reasons is tested through its readers (test_safetensors.c). */
#include "tests/support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/strict_json.h"

static size_t values_of(const char *text)
{
  return plm_json_values(text, strlen(text));
}

static void values_are_counted_outside_strings(void **state)
{
  (void)state;
  assert_int_equal(values_of("{}"), 2); /* at most: the object, and one value in it */
  assert_int_equal(values_of("{\"a\":1}"), 3);
  assert_int_equal(values_of("{\"a\":[1,2,3],\"b\":null}"), 8);
  assert_int_equal(values_of("{\"[,:{\":\"\\\",[\"}"), 3);
  assert_int_equal(values_of("\"unterminated \\"), 1);
}

static void the_number_of_values_is_bounded(void **state)
{
  (void)state;
  const struct plm_json_limits limits = {.values = 8, .depth = 4, .numbers = PLM_JSON_ANY_NUMBER};
  struct plm_error error = {0};
  cJSON *json;
  const char *good = "{\"a\":[1,2,3],\"b\":null}", *more = "{\"a\":[1,2,3],\"b\":null,\"c\":1}";
  assert_int_equal(plm_json_parse(good, strlen(good), &limits, &json, &error), PLM_OK);
  cJSON_Delete(json);
  assert_int_equal(plm_json_parse(more, strlen(more), &limits, &json, &error), PLM_LIMIT);
  assert_null(json);
  assert_non_null(strstr(error.what, "the limit is 8"));
}

static void lines_are_bounded(void **state)
{
  (void)state;
  static const char *const good[] = {"{}", "[]", "{\"a\":[{}]}\n", "[{\"host\":\"a\"}]", "1"};
  static const char *const bad[] = {"", "{", "{\"a\"}"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    cJSON *json = plm_json_line(good[i]);
    assert_non_null(json);
    cJSON_Delete(json);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_null(plm_json_line(bad[i]));
  enum { SIZE = 1 << 18 };
  char *many = malloc(SIZE + 1);
  memset(many, '[', SIZE);
  assert_null(plm_json_bounded(many, SIZE, SIZE)); /* too deep for cJSON */
  for (size_t i = 1; i < SIZE; i++) many[i] = i % 2 == 1 ? '0' : ',';
  memcpy(many + SIZE - 2, " ]", 3);
  assert_null(plm_json_bounded(many, SIZE, 1 << 16)); /* 131,000 values */
  cJSON *json = plm_json_bounded(many, SIZE, SIZE);
  assert_int_equal(cJSON_GetArraySize(json), SIZE / 2 - 1);
  cJSON_Delete(json);
  free(many);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_counted_outside_strings),
      cmocka_unit_test(the_number_of_values_is_bounded),
      cmocka_unit_test(lines_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
