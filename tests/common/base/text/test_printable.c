/* Foreign text cannot control a terminal, and printed JSON is UTF-8. */
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/scratch.h"

#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "common/base/log/log.h"
#include "common/base/log/terminal.h"
#include "common/base/text/json.h"
#include "common/base/text/printable.h"

static const struct {
  const char *text, *line, *lines;
} cases[] = {
    {"plain text", "plain text", "plain text"},
    {"caf\u00e9 \u2713 \U0001F9EC", "caf\u00e9 \u2713 \U0001F9EC", "caf\u00e9 \u2713 \U0001F9EC"},
    {"\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m", "\\x1b[31mred\\x1b[0m"},
    {"\033]0;title\a", "\\x1b]0;title\\x07", "\\x1b]0;title\\x07"},
    {"a\nb\tc", "a\\x0ab\\x09c", "a\nb\tc"},
    {"back\b\rover", "back\\x08\\x0dover", "back\\x08\\x0dover"},
    {"\x7f", "\\x7f", "\\x7f"},
    {"\xc2\x9b"
     "31m",
     "\\xc2\\x9b31m", "\\xc2\\x9b31m"}, /* CSI as one character */
    {"\x9b"
     "31m",
     "\\x9b31m", "\\x9b31m"}, /* the same byte in Latin-1 */
    {"\u202egnp.exe", "\\xe2\\x80\\xaegnp.exe", "\\xe2\\x80\\xaegnp.exe"},
    {"\xff\xc3", "\\xff\\xc3", "\\xff\\xc3"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"}, /* a surrogate */
};

static void unsafe_characters_are_written_as_numbers(void **state)
{
  (void)state;
  char out[64];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_text text = {0};
    assert_string_equal(plm_printable(out, sizeof out, cases[i].text, PLM_PRINTABLE_LINE),
                        cases[i].line);
    assert_string_equal(plm_printable(out, sizeof out, cases[i].text, PLM_PRINTABLE_LINES),
                        cases[i].lines);
    plm_text_put_printable(&text, cases[i].text, strlen(cases[i].text), PLM_PRINTABLE_LINE);
    assert_string_equal(text.data, cases[i].line);
    plm_text_deinit(&text);
  }
}

static void characters_are_cut_whole(void **state)
{
  (void)state;
  char out[8];
  assert_string_equal(plm_printable(out, 4, "a\u2713b", PLM_PRINTABLE_LINE), "a");
  assert_string_equal(plm_printable(out, 5, "a\u2713b", PLM_PRINTABLE_LINE), "a\u2713");
  assert_string_equal(plm_printable(out, 5, "a\033", PLM_PRINTABLE_LINE), "a");
  assert_string_equal(plm_printable(out, 6, "a\033", PLM_PRINTABLE_LINE), "a\\x1b");
  assert_string_equal(plm_printable(out, 1, "a", PLM_PRINTABLE_LINE), "");
}

/* The first and the last character of each range that is escaped, and their neighbours. */
static void each_range_of_unsafe_characters_has_its_bounds(void **state)
{
  static const struct {
    const char *text;
    bool safe;
  } bounds[] = {
      {"\x1f", false},     {" ", true},         {"~", true},          {"\x7f", false},
      {"\xc2\x80", false}, {"\xc2\x9f", false}, {"\u00a0", true},     {"\u061b", true},
      {"\u061c", false},   {"\u061d", true},    {"\u200d", true},     {"\u200e", false},
      {"\u200f", false},   {"\u2010", true},    {"\u2027", true},     {"\u2028", false},
      {"\u202e", false},   {"\u202f", true},    {"\u2065", true},     {"\u2066", false},
      {"\u2069", false},   {"\u206a", true},    {"\U0001202e", true}, {"\U0010ffff", true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
    char out[32], expected[32] = "";
    for (const char *byte = bounds[i].text; *byte != '\0' && !bounds[i].safe; byte++)
      snprintf(expected + strlen(expected), 5, "\\x%02x", (unsigned)(unsigned char)*byte);
    plm_printable(out, sizeof out, bounds[i].text, PLM_PRINTABLE_LINES);
    assert_string_equal(out, bounds[i].safe ? bounds[i].text : expected);
  }
}

static void what_is_printed_is_printable(void **state)
{
  (void)state;
  captured_begin(STDOUT_FILENO);
  plm_print(stdout, "%s: %d\n\t%s\n", "a\033b", 3, "\xff");
  plm_print(stdout, "%s", "");
  fflush(stdout);
  assert_string_equal(captured_end(), "a\\x1bb: 3\n\t\\xff\n");
}

static void errors_and_log_lines_are_printable(void **state)
{
  (void)state;
  struct plm_error error = {0};
  plm_error_set(&error, PLM_FORMAT, "record \"%s\" is bad", "\033[2Jx\nforged: line");
  plm_error_where(&error, "file\xff.fasta:3");
  plm_error_hint(&error, "remove \a it");
  captured_begin(STDERR_FILENO);
  plm_error_print("test", &error);
  const char *text = captured_end();
  assert_string_equal(text,
                      "test: file\\xff.fasta:3: record \"\\x1b[2Jx\\x0aforged: line\" is bad\n"
                      "  remove \\x07 it\n");
  plm_log_init("test", PLM_LOG_INFO);
  captured_begin(STDERR_FILENO);
  plm_log_error(&error);
  plm_warning("skipping %s\n  as it is", "a\033[0mb");
  text = captured_end();
  assert_string_equal(
      text, "test: error: file\\xff.fasta:3: record \"\\x1b[2Jx\\x0aforged: line\" is bad "
            "(remove \\x07 it)\ntest: warning: skipping a\\x1b[0mb\n  as it is\n");
}

static void printed_json_is_utf8(void **state)
{
  (void)state;
  cJSON *json = cJSON_CreateObject();
  cJSON_AddStringToObject(json, "name", "a\xff\x80z\033[0m\xc2\x9b\u202e\u00e9\x7f");
  captured_begin(STDOUT_FILENO);
  assert_int_equal(plm_json_print(json, NULL), PLM_OK);
  const char *text = captured_end();
  assert_string_equal(text, "{\"name\":\"a\ufffd\ufffdz\\u001b[0m\\u009b\\u202e\u00e9\\u007f\"}\n");
}

/* The first variable that is set and not empty decides. */
static void the_environment_says_whether_a_terminal_shows_utf8(void **state)
{
  static const struct {
    const char *all, *type, *lang;
    bool utf8;
  } locales[] = {
      {NULL, NULL, NULL, false},        {NULL, NULL, "C.UTF-8", true},
      {NULL, NULL, "de_DE.utf8", true}, {NULL, NULL, "C", false},
      {NULL, "en_US.UTF-8", "C", true}, {NULL, "C", "C.UTF-8", false},
      {"", "", "C.UTF-8", true},        {"", "C", "C.UTF-8", false},
      {"C.UTF-8", "C", "C", true},      {"POSIX", "C.UTF-8", "C.UTF-8", false},
  };
  (void)state;
  for (size_t i = 0; i < sizeof locales / sizeof *locales; i++) {
    const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"}, *const values[] = {locales[i].all,
                                                                                   locales[i].type,
                                                                                   locales[i].lang};
    for (size_t v = 0; v < 3; v++)
      assert_int_equal(values[v] != NULL ? setenv(names[v], values[v], 1) : unsetenv(names[v]), 0);
    if (plm_terminal_is_utf8() != locales[i].utf8)
      fail_msg("case %zu is not %d", i, locales[i].utf8);
  }
}

static void data_is_escaped_only_on_a_terminal(void **state)
{
  (void)state;
  static const char name[] = "n\033[31m\xff";
  char text[64] = "";
  int terminal, shown;
  struct termios raw;
  if (openpty(&shown, &terminal, NULL, NULL, NULL) != 0) skip("there is no pseudo-terminal");
  assert_int_equal(tcgetattr(terminal, &raw), 0);
  cfmakeraw(&raw);
  assert_int_equal(tcsetattr(terminal, TCSANOW, &raw), 0);
  FILE *file = fdopen(terminal, "w");
  plm_print_data(file, name);
  fflush(file);
  assert_int_equal(read(shown, text, sizeof text - 1), 13);
  assert_string_equal(text, "n\\x1b[31m\\xff");
  fclose(file);
  close(shown);
  file = fopen(scratch_path("data"), "we"); /* no terminal */
  assert_non_null(file);
  plm_print_data(file, name);
  assert_int_equal(ftell(file), sizeof name - 1);
  fclose(file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unsafe_characters_are_written_as_numbers),
      cmocka_unit_test(characters_are_cut_whole),
      cmocka_unit_test(each_range_of_unsafe_characters_has_its_bounds),
      cmocka_unit_test(what_is_printed_is_printable),
      cmocka_unit_test(errors_and_log_lines_are_printable),
      cmocka_unit_test(printed_json_is_utf8),
      cmocka_unit_test(the_environment_says_whether_a_terminal_shows_utf8),
      cmocka_unit_test(data_is_escaped_only_on_a_terminal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
