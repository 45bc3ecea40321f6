/* Strict JSON: the number of values is bounded before cJSON stores any of them. What it refuses for
 * other reasons is tested through its readers (test_safetensors.c). */
#include "tests/support/harness/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "common/base/text/json.h"
#include "common/base/text/strict_json.h"

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

static const struct {
  const char *text, *counts, *any; /* "": it is read */
} texts[] = {
    {"{}", "", ""},
    {"", "the JSON does not begin with {", "the JSON does not begin with {"},
    {" {}", "the JSON does not begin with {", "the JSON does not begin with {"},
    {"{} \n\r\t", "", ""},
    {"{}x", "byte 2 of the JSON: something follows the object",
     "byte 2 of the JSON: something follows the object"},
    {"{} {}", "byte 3 of the JSON: something follows the object",
     "byte 3 of the JSON: something follows the object"},
    {"{\"a\":1,}", "byte 7 of the JSON: invalid JSON", "byte 7 of the JSON: invalid JSON"},
    {"{\"a\":[[[]]]}", "", ""},
    {"{\"a\":[[[[]]]]}", "byte 8 of the JSON: nested too deeply",
     "byte 8 of the JSON: nested too deeply"},
    {"{}}", "byte 2 of the JSON: an unmatched closing bracket",
     "byte 2 of the JSON: an unmatched closing bracket"},
    {"{\"a\":A}", "byte 5 of the JSON: an unexpected character",
     "byte 5 of the JSON: an unexpected character"},
    {"{\"a\":|}", "byte 5 of the JSON: an unexpected character",
     "byte 5 of the JSON: an unexpected character"},
    {"{\"a\":1,\"b\":{\"a\":2}}", "", ""},
    {"{\"b\":1,\"a\":1,\"b\":2}", "the key \"b\" occurs twice", "the key \"b\" occurs twice"},
    {"{\"a\":[{\"c\":1,\"c\":2}]}", "the key \"c\" occurs twice", "the key \"c\" occurs twice"},
    /* strings */
    {"{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u0001\"}", "", ""},
    {"{\"a\":\"\\x\"}", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\u00g0\"}", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\ug000\"}", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\x0041\"}", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\u0041", "byte 12 of the JSON: an unterminated string",
     "byte 12 of the JSON: an unterminated string"},
    {"{\"a\":\"\\u000", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\", "byte 6 of the JSON: an invalid escape",
     "byte 6 of the JSON: an invalid escape"},
    {"{\"a\":\"\\u0000\"}", "byte 6 of the JSON: U+0000 in a string",
     "byte 6 of the JSON: U+0000 in a string"},
    {"{\"a\":\"x\x1f\"}", "byte 7 of the JSON: a control character in a string",
     "byte 7 of the JSON: a control character in a string"},
    {"{\"a\":\" \xc3\xa9\"}", "", ""},
    {"{\"a\":\"\xc3\"}", "byte 6 of the JSON: invalid UTF-8", "byte 6 of the JSON: invalid UTF-8"},
    {"{\"a\":\"b", "byte 7 of the JSON: an unterminated string",
     "byte 7 of the JSON: an unterminated string"},
    /* numbers */
    {"{\"a\":0}", "", ""},
    {"{\"a\":10}", "", ""},
    {"{\"a\":9007199254740992}", "", ""},
    {"{\"a\":9007199254740993}", "byte 5 of the JSON: a number beyond 2^53", ""},
    {"{\"a\":10000000000000000}", "byte 5 of the JSON: a number beyond 2^53", ""},
    {"{\"a\":-1}", "byte 5 of the JSON: a number that is not a non-negative integer", ""},
    {"{\"a\":1.5}", "byte 5 of the JSON: a number that is not a non-negative integer", ""},
    {"{\"a\":1e2}", "byte 5 of the JSON: a number that is not a non-negative integer", ""},
    {"{\"a\":-1.5E+20}", "byte 5 of the JSON: a number that is not a non-negative integer", ""},
    {"{\"a\":1e-2}", "byte 5 of the JSON: a number that is not a non-negative integer", ""},
    {"{\"a\":01}", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":-}", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":1.}", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":1e}", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":1e+}", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    /* the text ends within one */
    {"{\"a\":1", "byte 5 of the JSON: invalid JSON", "byte 5 of the JSON: invalid JSON"},
    {"{\"a\":-", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":1.", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":1e", "byte 5 of the JSON: a malformed number",
     "byte 5 of the JSON: a malformed number"},
    {"{\"a\":0.00000000000000000000000000000000000000000000000000000000001}", /* 61 characters */
     "byte 5 of the JSON: a number of more than 60 characters",
     "byte 5 of the JSON: a number of more than 60 characters"},
    {"{\"a\":0.0000000000000000000000000000000000000000000000000000000001}", /* 60 */
     "byte 5 of the JSON: a number that is not a non-negative integer", ""},
};

/* Each text is parsed from memory of its size, so that nothing behind it is read. */
static void each_refusal_says_where_it_is(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    for (int counts = 0; counts < 2; counts++) {
      const struct plm_json_limits limits = {
          .values = 20, .depth = 4, .numbers = counts ? PLM_JSON_COUNTS : PLM_JSON_ANY_NUMBER};
      const char *expected = counts ? texts[i].counts : texts[i].any;
      const size_t size = strlen(texts[i].text);
      struct plm_error error = {0};
      cJSON *json;
      char *exact = malloc(size);
      if (size != 0) memcpy(exact, texts[i].text, size);
      const plm_status status = plm_json_parse(exact, size, &limits, &json, &error);
      free(exact);
      if (strcmp(error.what, expected) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", texts[i].text, error.what, expected);
      assert_int_equal(status, expected[0] == '\0' ? PLM_OK : PLM_FORMAT);
      assert_int_equal(json != NULL, status == PLM_OK);
      cJSON_Delete(json);
    }
}

static void counts_are_integers_up_to_two_to_the_53(void **state)
{
  static const struct {
    const char *text;
    uint64_t count; /* UINT64_MAX: it is none */
  } counts[] = {
      {"0", 0},
      {"7", 7},
      {"-1", UINT64_MAX},
      {"0.5", UINT64_MAX},
      {"1e3", 1000},
      {"9007199254740992", UINT64_C(1) << 53},
      {"\"1\"", UINT64_MAX},
      {"9007199254740994", UINT64_MAX},
      {"true", UINT64_MAX},
      {"null", UINT64_MAX},
  };
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    uint64_t count = UINT64_MAX;
    cJSON *json = plm_json_line(counts[i].text);
    assert_int_equal(plm_json_count(json, &count), counts[i].count != UINT64_MAX);
    if (counts[i].count != UINT64_MAX) assert_int_equal(count, counts[i].count);
    cJSON_Delete(json);
  }
  assert_false(plm_json_count(NULL, &(uint64_t){0}));
}

static void members_have_a_default(void **state)
{
  (void)state;
  cJSON *json = plm_json_line("{\"n\":2.5,\"s\":\"x\",\"N\":1}");
  assert_true(plm_json_number(json, "n", 9) == 2.5);
  assert_true(plm_json_number(json, "s", 9) == 9);
  assert_true(plm_json_number(json, "m", 9) == 9);
  assert_true(plm_json_number(NULL, "n", 9) == 9);
  assert_int_equal(plm_json_whole(json, "N", 1, 9), 1);
  assert_int_equal(plm_json_whole(json, "N", 0, 9), 9);
  assert_int_equal(plm_json_whole(json, "n", 5, 9), 9);
  assert_int_equal(plm_json_whole(json, "s", 5, 9), 9);
  assert_int_equal(plm_json_whole(NULL, "N", 5, 9), 9);
  assert_string_equal(plm_json_string(json, "s", "y"), "x");
  assert_string_equal(plm_json_string(json, "S", "y"), "y");
  assert_string_equal(plm_json_string(json, "n", "y"), "y");
  char *text = plm_json_text(json, false);
  assert_string_equal(text, "{\"n\":2.5,\"s\":\"x\",\"N\":1}");
  free(text);
  text = plm_json_text(json, true);
  assert_string_equal(text, "{\n\t\"n\":\t2.5,\n\t\"s\":\t\"x\",\n\t\"N\":\t1\n}");
  free(text);
  cJSON_Delete(json);
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
      cmocka_unit_test(each_refusal_says_where_it_is),
      cmocka_unit_test(counts_are_integers_up_to_two_to_the_53),
      cmocka_unit_test(members_have_a_default),
      cmocka_unit_test(lines_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
