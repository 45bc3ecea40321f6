/* Growing strings: fields of CSV, words of a shell, UTF-8, and trimming. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/name_list.h"
#include "common/base/text/text.h"

static void bytes_are_appended_and_end_with_nul(void **state)
{
  (void)state;
  struct plm_text text = {0};
  plm_text_append(&text, NULL, 0);
  assert_string_equal(text.data, "");
  assert_int_equal(text.length, 0);
  char expected[301];
  for (int i = 0; i < 300; i++) { /* each length, also those at which the memory grows */
    expected[i] = (char)('a' + i % 26);
    expected[i + 1] = '\0';
    if (i % 2 == 0)
      plm_text_append(&text, expected + i, 1);
    else
      plm_text_printf(&text, "%c", expected[i]);
    assert_int_equal(text.length, i + 1);
    assert_string_equal(text.data, expected);
    assert_true(text.capacity > text.length);
  }
  const size_t capacity = text.capacity;
  plm_text_clear(&text);
  assert_string_equal(text.data, "");
  assert_int_equal(text.length, 0);
  assert_int_equal(text.capacity, capacity);
  plm_text_puts(&text, "again");
  assert_string_equal(text.data, "again");
  plm_text_deinit(&text);
  assert_null(text.data);
  assert_int_equal(text.length, 0);
  assert_int_equal(text.capacity, 0);
  plm_text_clear(&text); /* also when there is no memory yet */
}

static void a_field_of_csv_is_quoted_if_necessary(void **state)
{
  static const struct {
    const char *field, *comma, *semicolon;
  } cases[] = {
      {"", "", ""},
      {"plain text", "plain text", "plain text"},
      {"a,b", "\"a,b\"", "a,b"},
      {"a;b", "a;b", "\"a;b\""},
      {"\"", "\"\"\"\"", "\"\"\"\""},
      {"say \"x\"", "\"say \"\"x\"\"\"", "\"say \"\"x\"\"\""},
      {"a\nb", "\"a\nb\"", "\"a\nb\""},
      {"a\r", "\"a\r\"", "\"a\r\""},
      {",b", "\",b\"", ",b"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_text comma = {0}, semicolon = {0};
    plm_text_put_csv(&comma, cases[i].field, strlen(cases[i].field), ',');
    plm_text_put_csv(&semicolon, cases[i].field, strlen(cases[i].field), ';');
    assert_string_equal(comma.data, cases[i].comma);
    assert_string_equal(semicolon.data, cases[i].semicolon);
    plm_text_deinit(&comma);
    plm_text_deinit(&semicolon);
  }
}

static void words_are_listed_and_found(void **state)
{
  static const char *const words[] = {"a", "b", "c", NULL};
  static const char *const expected[] = {"a, b or c", "b or c", "c"};
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    struct plm_text text = {0};
    plm_text_put_list(&text, words + i, " or ");
    assert_string_equal(text.data, expected[i]);
    plm_text_deinit(&text);
  }
  for (int i = 0; i < 3; i++) assert_int_equal(plm_text_find(words, words[i]), i);
  assert_int_equal(plm_text_find(words, "d"), -1);
  assert_int_equal(plm_text_find(words, ""), -1);
  assert_int_equal(plm_text_find(words, NULL), -1);
  struct plm_text none = {0};
  plm_text_put_list(&none, words + 3, " or ");
  assert_null(none.data);
}

static void a_word_is_quoted_for_a_shell(void **state)
{
  static const struct {
    const char *word, *quoted;
  } cases[] = {
      {"", "''"},
      {"plain", "plain"},
      {"/a-b_c.d:e=f@g%h+i,j", "/a-b_c.d:e=f@g%h+i,j"},
      {"azAZ09", "azAZ09"},
      {"a b", "'a b'"},
      {"$HOME", "'$HOME'"},
      {"it's", "'it'\\''s'"},
      {"'", "''\\'''"},
      {"x*", "'x*'"},
      {"~", "'~'"},
  };
  (void)state;
  struct plm_text all = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    plm_text_clear(&all);
    plm_text_puts(&all, "> ");
    plm_text_put_word(&all, cases[i].word);
    assert_string_equal(all.data + 2, cases[i].quoted);
  }
  plm_text_deinit(&all);
}

static size_t utf8_length(unsigned a, unsigned b, unsigned c, unsigned d, size_t left)
{
  const unsigned char bytes[] = {(unsigned char)a, (unsigned char)b, (unsigned char)c,
                                 (unsigned char)d};
  unsigned char *exact = malloc(left); /* nothing behind what is left may be read */
  assert_non_null(exact);
  memcpy(exact, bytes, left);
  const size_t length = plm_utf8_length(exact, left);
  free(exact);
  return length;
}

/* The table 3-7 of the Unicode standard: for each form the bounds of its first and second byte. */
static void utf8_has_the_bounds_of_the_standard(void **state)
{
  static const struct {
    unsigned first_low, first_high, second_low, second_high;
    size_t length;
  } forms[] = {
      {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
      {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
      {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
  };
  (void)state;
  for (unsigned first = 0; first < 256; first++)
    for (unsigned second = 0; second < 256; second++) {
      size_t expected = first < 0x80 ? 1 : 0;
      for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (first >= forms[i].first_low && first <= forms[i].first_high &&
            second >= forms[i].second_low && second <= forms[i].second_high)
          expected = forms[i].length;
      if (utf8_length(first, second, 0x80, 0xbf, 4) != expected)
        fail_msg("%02x %02x 80 bf is not %zu bytes", first, second, expected);
      for (size_t left = 1; left < 4; left++)
        assert_int_equal(utf8_length(first, second, 0x80, 0xbf, left),
                         left >= expected ? expected : 0);
    }
  assert_int_equal(utf8_length(0xe1, 0x80, 0x7f, 0, 4), 0);
  assert_int_equal(utf8_length(0xe1, 0x80, 0xc0, 0, 4), 0);
  assert_int_equal(utf8_length(0xe1, 0x80, 0xbf, 0, 4), 3);
  assert_int_equal(utf8_length(0xf1, 0x80, 0x80, 0x7f, 4), 0);
  assert_int_equal(utf8_length(0xf1, 0x80, 0x80, 0xc0, 4), 0);
  assert_int_equal(utf8_length(0xf1, 0x80, 0x40, 0x80, 4), 0);
}

static void blanks_are_trimmed_at_both_ends(void **state)
{
  static const struct {
    const char *text, *trimmed;
  } cases[] = {
      {"", ""},       {" ", ""},        {" \t\r\n", ""},      {"a", "a"},
      {" a", "a"},    {"a ", "a"},      {"\ta b\r\n", "a b"}, {"  a", "a"},
      {"a\n\n", "a"}, {"\xff", "\xff"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text = cases[i].text;
    size_t size = strlen(text);
    plm_trim(&text, &size);
    assert_int_equal(size, strlen(cases[i].trimmed));
    assert_memory_equal(text, cases[i].trimmed, size);
  }
  const char *part = "ab  c"; /* only what lies within the size counts */
  size_t size = 3;
  plm_trim(&part, &size);
  assert_int_equal(size, 2);
  part = " c", size = 0; /* the blank does not belong to it */
  plm_trim(&part, &size);
  assert_int_equal(size, 0);
}

static void an_ending_is_compared_whole(void **state)
{
  (void)state;
  assert_true(plm_text_ends_with("model.onnx", ".onnx"));
  assert_true(plm_text_ends_with(".onnx", ".onnx"));
  assert_true(plm_text_ends_with("a", ""));
  assert_false(plm_text_ends_with("onnx", ".onnx"));
  assert_false(plm_text_ends_with("model.onn", ".onnx"));
  assert_false(plm_text_ends_with("model.onnx2", ".onnx"));
}

static void a_list_of_names_is_split_at_its_commas(void **state)
{
  static const struct {
    const char *text, *joined;
    size_t count;
  } cases[] = {{NULL, "", 0},    {"", "", 0},        {",", "", 0},           {"a", "a|", 1},
               {"ab", "ab|", 1}, {"a,b", "a|b|", 2}, {"a,b,c", "a|b|c|", 3}, {",a,,b,", "a|b|", 2}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_name_list list;
    struct plm_text joined = {0};
    plm_name_list_init(&list, cases[i].text);
    assert_int_equal(list.count, cases[i].count);
    for (size_t k = 0; k < list.count; k++) plm_text_printf(&joined, "%s|", list.names[k]);
    assert_string_equal(joined.data != NULL ? joined.data : "", cases[i].joined);
    plm_text_deinit(&joined);
    plm_name_list_deinit(&list);
    assert_null(list.names);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_list_of_names_is_split_at_its_commas),
      cmocka_unit_test(bytes_are_appended_and_end_with_nul),
      cmocka_unit_test(a_field_of_csv_is_quoted_if_necessary),
      cmocka_unit_test(words_are_listed_and_found),
      cmocka_unit_test(a_word_is_quoted_for_a_shell),
      cmocka_unit_test(utf8_has_the_bounds_of_the_standard),
      cmocka_unit_test(blanks_are_trimmed_at_both_ends),
      cmocka_unit_test(an_ending_is_compared_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
