/* common/cli/options: which words are options, their values as numbers, and how help is wrapped. */
#include "tests/support/harness/cmocka_all.h"

#include <limits.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "common/cli/options.h"
#include "common/cli/task_options.h"
#include "tests/support/harness/captured.h"

static const struct plm_option table[] = {
    {'o', "output", "FILE", "the file"},      {'a', "all", NULL, "everything"},
    {'f', "follow", NULL, "go on"},           {0, "folder", "DIR", "the folder"},
    {0, "word", "WORD", "any word"},          {'q', "queue", NULL, "its letter is also --quiet's"},
    {0, "verbose", "N", "how many messages"}, {0, NULL, NULL, NULL},
};

enum { WORDS_MAX = 16 };

/* Parses the words of a line; those that begin with % are empty. */
static plm_status parse(const char *line, struct plm_arguments *arguments, struct plm_error *error)
{
  static char words[2048];
  static char *argv[WORDS_MAX];
  int argc = 0;
  snprintf(words, sizeof words, "%s", line);
  argv[argc++] = "program";
  for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
    argv[argc++] = word[0] == '%' ? "" : word;
  return plm_arguments_parse(argc, argv, table, arguments, error);
}

/* "all output=x [operand]", or the error. */
static void read_line(const char *line, struct plm_text *text)
{
  struct plm_arguments arguments;
  struct plm_error error = {0};
  plm_text_clear(text);
  plm_text_puts(text, "");
  if (parse(line, &arguments, &error) != PLM_OK) {
    plm_text_printf(text, "%d: %s", plm_status_exit_code(error.status), error.what);
    assert_null(arguments.values);
    return;
  }
  for (size_t i = 0; i < arguments.value_count; i++)
    plm_text_printf(text, " %s%s%s", arguments.values[i].option->name,
                    arguments.values[i].value != NULL ? "=" : "",
                    arguments.values[i].value != NULL ? arguments.values[i].value : "");
  for (size_t i = 0; i < arguments.positional_count; i++)
    plm_text_printf(text, " [%s]", arguments.positionals[i]);
  plm_arguments_deinit(&arguments);
}

static void words_are_options_values_or_operands(void **state)
{
  (void)state;
  static const struct {
    const char *line, *wanted;
  } cases[] = {
      {"", ""},
      {"one", " [one]"},
      {"--all", " all"},
      {"--output x", " output=x"},
      {"--output=x", " output=x"},
      {"--output=x=y", " output=x=y"},
      {"--output --all", " output=--all"},
      {"--word=", " word="},
      {"--word %", " word="},
      {"--verbose 2", " verbose=2"},
      {"-a", " all"},
      {"-af", " all follow"},
      {"-afox", " all follow output=x"},
      {"-ox", " output=x"},
      {"-o=x", " output=x"},
      {"-o x y", " output=x [y]"},
      {"-ao x", " all output=x"},
      {"-q", " queue"},
      {"--quiet", " quiet"},
      {"-c x", " config=x"},
      {"-cx", " config=x"},
      {"--set a=b --set c=d", " set=a=b set=c=d"},
      {"-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       " all all all all all all all all all all all all all all all"
       " all all all all all all all all all all all all all all all"},
      {"one - two", " [one] [-] [two]"},
      {"one --all two", " all [one] [two]"},
      {"% one", " [] [one]"},
      {"-- --all -a --", " [--all] [-a] [--]"},
      {"-a -- -a", " all [-a]"},
      {"--output", "2: option \"--output\" needs an argument: FILE"},
      {"-a -o", "2: option \"-o\" needs an argument: FILE"},
      {"--all=1", "2: option \"--all\" takes no value"},
      {"--json=", "2: option \"--json\" takes no value"},
      {"-Z", "2: unknown option \"-Z\""},
      {"-aZ", "2: unknown option \"-Z\""},
      {"--outptu x", "2: unknown option \"--outptu\"; did you mean \"--output\"?"},
      {"--alle", "2: unknown option \"--alle\"; did you mean \"--all\"?"},
      {"--quit=1", "2: unknown option \"--quit\"; did you mean \"--quiet\"?"},
      {"--xxxxxx", "2: unknown option \"--xxxxxx\""},
      {"--zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz-end",
       "2: unknown option \"--zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz-\""},
      {"--output=", "2: option \"--output\" needs an argument (FILE), but got an empty word"},
      {"--folder %", "2: option \"--folder\" needs an argument (DIR), but got an empty word"},
      {"-a -c= -f", "2: option \"--config\" needs an argument (FILE), but got an empty word"},
  };
  struct plm_text text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    read_line(cases[i].line, &text);
    assert_string_equal(text.data, cases[i].wanted);
  }
  plm_text_deinit(&text);
}

static void the_last_value_counts(void **state)
{
  (void)state;
  struct plm_arguments arguments;
  assert_int_equal(parse("--word one -a --word two", &arguments, NULL), PLM_OK);
  assert_string_equal(plm_arguments_get(&arguments, "word"), "two");
  assert_string_equal(plm_arguments_get(&arguments, "all"), "");
  assert_null(plm_arguments_get(&arguments, "output"));
  assert_true(plm_arguments_has(&arguments, "all"));
  assert_false(plm_arguments_has(&arguments, "output"));
  plm_arguments_deinit(&arguments);
  assert_int_equal(arguments.value_count, 0);
}

static void unsigned_numbers_are_whole(void **state)
{
  (void)state;
  static const struct {
    const char *line;
    unsigned long long value;
  } right[] = {{"", 7},
               {"--word 0", 0},
               {"--word 9", 9},
               {"--word 007", 7},
               {"--word 18446744073709551615", ULLONG_MAX}};
  static const char *const wrong[] = {"%", "-1", "+1", "x", "1x", "1.5", "18446744073709551616"};
  struct plm_arguments arguments;
  struct plm_error error = {0};
  unsigned long long value;
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    assert_int_equal(parse(right[i].line, &arguments, NULL), PLM_OK);
    value = 1234;
    assert_int_equal(plm_arguments_u64(&arguments, "word", 7, &value, &error), PLM_OK);
    assert_true(value == right[i].value);
    plm_arguments_deinit(&arguments);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64], wanted[128];
    const char *word = wrong[i][0] == '%' ? "" : wrong[i];
    snprintf(line, sizeof line, "--word %s", wrong[i]);
    snprintf(wanted, sizeof wanted, "option \"--word\" needs a whole number, not \"%s\"", word);
    assert_int_equal(parse(line, &arguments, NULL), PLM_OK);
    assert_int_equal(plm_arguments_u64(&arguments, "word", 7, &value, &error), PLM_USAGE);
    assert_string_equal(error.what, wanted);
    assert_true(value == 7);
    plm_arguments_deinit(&arguments);
  }
}

static void signed_numbers_are_whole(void **state)
{
  (void)state;
  static const struct {
    const char *line;
    long long value;
  } right[] = {{"", -7},
               {"--word 0", 0},
               {"--word=-9", -9},
               {"--word +9", 9},
               {"--word=-9223372036854775808", LLONG_MIN},
               {"--word 9223372036854775807", LLONG_MAX}};
  static const char *const wrong[] = {
      "%", "-", "+", "--1", "-+1", "-x", "x", "1x", "9223372036854775808"};
  struct plm_arguments arguments;
  struct plm_error error = {0};
  long long value;
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    assert_int_equal(parse(right[i].line, &arguments, NULL), PLM_OK);
    value = 1234;
    assert_int_equal(plm_arguments_i64(&arguments, "word", -7, &value, &error), PLM_OK);
    assert_true(value == right[i].value);
    plm_arguments_deinit(&arguments);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char line[64];
    snprintf(line, sizeof line, "--word %s", wrong[i]);
    assert_int_equal(parse(line, &arguments, NULL), PLM_OK);
    assert_int_equal(plm_arguments_i64(&arguments, "word", -7, &value, &error), PLM_USAGE);
    assert_non_null(strstr(error.what, "option \"--word\" needs a whole number, not \""));
    assert_true(value == -7);
    plm_arguments_deinit(&arguments);
  }
}

static void limits_belong_to_the_range(void **state)
{
  (void)state;
  static const struct {
    const char *line;
    plm_status status;
    unsigned value;
  } cases[] = {
      {"", PLM_OK, 5},
      {"--word 2", PLM_USAGE, 5},
      {"--word 3", PLM_OK, 3},
      {"--word 8", PLM_OK, 8},
      {"--word 9", PLM_USAGE, 5},
      {"--word x", PLM_USAGE, 5},
      {"--word 4294967299", PLM_USAGE, 5}, /* 3 if cut to 32 bits */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_arguments arguments;
    struct plm_error error = {0};
    unsigned value = 5;
    assert_int_equal(parse(cases[i].line, &arguments, NULL), PLM_OK);
    assert_int_equal(plm_arguments_within(&arguments, "word", 3, 8, &value, &error),
                     cases[i].status);
    assert_int_equal(value, cases[i].value);
    if (strcmp(cases[i].line, "--word 9") == 0)
      assert_string_equal(error.what, "--word must be from 3 to 8");
    plm_arguments_deinit(&arguments);
  }
}

static void a_task_names_the_option_it_needs(void **state)
{
  (void)state;
  struct plm_arguments arguments;
  struct plm_error error = {0};
  assert_int_equal(parse("--output x", &arguments, NULL), PLM_OK);
  assert_int_equal(plm_task_needs(&arguments, table, "output", "it is written", &error), PLM_OK);
  assert_int_equal(plm_task_needs(&arguments, table, "folder", "it is read", &error), PLM_USAGE);
  assert_string_equal(error.what, "--folder DIR is needed: it is read");
  plm_arguments_deinit(&arguments);
}

/* ---- a terminal ---------------------------------------------------------------------------- */

/* Standard output is a terminal of this width, until terminal_end. Returns false without one. */
static int terminal[2], before_terminal;

static bool terminal_begin(unsigned short columns)
{
  const struct winsize size = {.ws_row = 25, .ws_col = columns};
  if (openpty(&terminal[0], &terminal[1], NULL, NULL, &size) != 0) return false;
  fflush(stdout);
  before_terminal = dup(STDOUT_FILENO);
  return dup2(terminal[1], STDOUT_FILENO) == STDOUT_FILENO;
}

/* Returns what was printed there, without carriage returns. */
static const char *terminal_end(void)
{
  static char text[512];
  fflush(stdout);
  dup2(before_terminal, STDOUT_FILENO);
  close(before_terminal);
  close(terminal[1]);
  size_t size = 0;
  for (ssize_t got; (got = read(terminal[0], text + size, sizeof text - 1 - size)) > 0;)
    size += (size_t)got;
  close(terminal[0]);
  size_t kept = 0;
  for (size_t i = 0; i < size; i++)
    if (text[i] != '\r') text[kept++] = text[i];
  text[kept] = '\0';
  return text;
}

static int colored(const char *line, const char *no_color, const char *term)
{
  struct plm_arguments arguments;
  bool color = false;
  if (no_color != NULL)
    setenv("NO_COLOR", no_color, 1);
  else
    unsetenv("NO_COLOR");
  if (term != NULL)
    setenv("TERM", term, 1);
  else
    unsetenv("TERM");
  assert_int_equal(parse(line, &arguments, NULL), PLM_OK);
  const plm_status status = plm_arguments_color(&arguments, &color, NULL);
  plm_arguments_deinit(&arguments);
  return status != PLM_OK ? -1 : color;
}

static void colors_are_for_terminals(void **state)
{
  (void)state;
  captured_begin(STDOUT_FILENO);
  const int piped[] = {colored("", NULL, "xterm"), colored("--color auto", NULL, "xterm"),
                       colored("--color always", "1", "dumb"),
                       colored("--color never", NULL, "xterm"),
                       colored("--color some", NULL, "xterm")};
  captured_end();
  const int wanted[] = {0, 0, 1, 0, -1};
  assert_memory_equal(piped, wanted, sizeof wanted);
  if (!terminal_begin(80)) skip("there is no pseudo-terminal");
  const int shown[] = {colored("", NULL, "xterm"), colored("--color auto", "", "xterm"),
                       colored("", "1", "xterm"),  colored("", NULL, "dumb"),
                       colored("", NULL, NULL),    colored("--color never", NULL, "xterm")};
  terminal_end();
  const int wanted_there[] = {1, 1, 0, 0, 0, 0};
  assert_memory_equal(shown, wanted_there, sizeof wanted_there);
}

/* ---- help ---------------------------------------------------------------------------------- */

static const char *help(const char *columns, const char *text, int column)
{
  setenv("COLUMNS", columns, 1);
  captured_begin(STDOUT_FILENO);
  plm_help_text(text, column);
  return captured_end();
}

static void help_is_wrapped(void **state)
{
  (void)state;
  /* a line has at most one column less than the terminal */
  assert_string_equal(help("40", "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd e\n", 0),
                      "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd\ne\n");
  assert_string_equal(help("40", "aaaaaaaaa bbbbbbbbb ccccccccc dddddddddd e", 0),
                      "aaaaaaaaa bbbbbbbbb ccccccccc\ndddddddddd e\n");
  /* the cursor is at column 30 already, and the next lines begin there */
  assert_string_equal(help("40", "aaaa bbbb cccc\ndddd", 30),
                      "aaaa bbbb\n"
                      "                              cccc dddd\n");
  /* lines join, several blanks are one, empty and indented lines stay */
  assert_string_equal(
      help("40",
           "one\ntwo  three \nfour\n\n  indented five six seven eight nine ten eleven\n"
           "  next\nlast\n",
           0),
      "one two three four\n\n  indented five six seven eight nine\n  ten eleven\n  next last\n");
  assert_string_equal(help("40", "usage: program one two three four five six\n", 0),
                      "usage: program one two three four five\n       six\n");
  /* a word that is wider than the terminal stays whole */
  assert_string_equal(help("40", "a 12345678901234567890123456789012345678901 b", 0),
                      "a\n12345678901234567890123456789012345678901\nb\n");
  assert_string_equal(help("40", "", 0), "");
}

/* What is too wide for its column is followed by a new line. */
static void options_are_in_a_column(void **state)
{
  static const struct plm_option wide[] = {
      {.name = "abcdefghijklmnopqr", .letter = 'a', .help = "fits"},
      {.name = "abcdefghijklmnop", .argument = "FI", .help = "does not"},
      {0}};
  (void)state;
  setenv("COLUMNS", "80", 1);
  captured_begin(STDOUT_FILENO);
  plm_options_help(wide);
  assert_string_equal(captured_end(), "  -a, --abcdefghijklmnopqr  fits\n"
                                      "      --abcdefghijklmnop FI\n"
                                      "                            does not\n");
}

/* The length of the first line of a text of many words. */
static size_t line_at(const char *columns)
{
  static char words[4096];
  for (size_t i = 0; i + 1 < sizeof words; i++) words[i] = i % 2 == 0 ? 'x' : ' ';
  return strcspn(help(columns, words, 0), "\n");
}

static void the_width_has_limits(void **state)
{
  (void)state;
  assert_int_equal(line_at("40"), 39);
  assert_int_equal(line_at("39"), 99);
  assert_int_equal(line_at("1000"), 999);
  assert_int_equal(line_at("1001"), 99);
  assert_int_equal(line_at(""), 99);
  unsetenv("COLUMNS");
  captured_begin(STDOUT_FILENO);
  plm_help_text("x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x "
                "x x x x x x x x x x "
                "x x",
                0);
  assert_int_equal(strcspn(captured_end(), "\n"), 99);
}

static void the_width_is_the_terminals(void **state)
{
  (void)state;
  static const struct {
    unsigned short columns;
    const char *wanted;
  } cases[] = {{40, "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd\neeeee\n"},
               {46, "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd eeeee\n"},
               {39, "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd eeeee\n"}}; /* too narrow: COLUMNS */
  setenv("COLUMNS", "60", 1);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!terminal_begin(cases[i].columns)) skip("there is no pseudo-terminal");
    plm_help_text("aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd eeeee", 0);
    assert_string_equal(terminal_end(), cases[i].wanted);
  }
}

static void options_have_two_columns(void **state)
{
  (void)state;
  static const struct plm_option some[] = {
      {'o', "output", "FILE", "the file that is written"},
      {0, "all", NULL, "everything"},
      {0, "just-fits-here", "DI", "two blanks before this"}, /* 26 columns */
      {0, "just-fits-here", "DIR", "below it"},
      {0, NULL, NULL, NULL},
  };
  setenv("COLUMNS", "50", 1);
  captured_begin(STDOUT_FILENO);
  plm_options_help(some);
  plm_options_help(NULL);
  assert_string_equal(captured_end(), "  -o, --output FILE         the file that is\n"
                                      "                            written\n"
                                      "      --all                 everything\n"
                                      "      --just-fits-here DI   two blanks before\n"
                                      "                            this\n"
                                      "      --just-fits-here DIR  below it\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_are_options_values_or_operands),
      cmocka_unit_test(the_last_value_counts),
      cmocka_unit_test(unsigned_numbers_are_whole),
      cmocka_unit_test(signed_numbers_are_whole),
      cmocka_unit_test(limits_belong_to_the_range),
      cmocka_unit_test(a_task_names_the_option_it_needs),
      cmocka_unit_test(colors_are_for_terminals),
      cmocka_unit_test(help_is_wrapped),
      cmocka_unit_test(options_are_in_a_column),
      cmocka_unit_test(the_width_has_limits),
      cmocka_unit_test(the_width_is_the_terminals),
      cmocka_unit_test(options_have_two_columns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
