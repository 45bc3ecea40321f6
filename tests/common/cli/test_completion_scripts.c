/* common/cli/completion: what is read from the words of the help, and the exact scripts for a small
 * program (tests/common/cli/completion/SHELL). The shells themselves judge the real programs'
 * scripts in tests/stages/commands/test_completion*.sh. */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text/text.h"
#include "common/cli/completion_words.h"
#include "common/config/settings.h"
#include "tests/support/expected/expected_file.h"
#include "tests/support/harness/captured.h"

static const struct plm_option of_program[] = {
    {'p', "port", "N", "a number: 'quoted' [0:9] \\ more"},
    {0, "fast", NULL, "at once"},
    {0, NULL, NULL, NULL},
};
static const struct plm_option of_first[] = {
    {'o', "output", "FILE", "the file's name"},
    {0, "all", NULL, "all: everything"},
    {0, "mode", "auto|never|PATH", "how"},
    {0, NULL, NULL, NULL},
};
static const struct plm_option none[] = {{0, NULL, NULL, NULL}};
static const struct plm_completed_command commands[] = {
    {"first", "[FILE] [STAGE...]", "the program's first", of_first},
    {"scale", "packer=N", "changes a number", none},
    {"last", NULL, "has nothing", NULL},
    {"files", "[-n N] IN... --corpus DIR", "reads files", NULL},
    {"pick", "one|two", "has words", NULL},
};
static const struct plm_completed_program program = {
    .name = "plm-some-thing",
    .options = of_program,
    .commands = commands,
    .command_count = sizeof commands / sizeof *commands,
};
static const struct plm_completed_program simple = {.name = "plm-simple", .options = of_program};

static void operands_are_read(void **state)
{
  (void)state;
  static const struct {
    const char *operands;
    bool files;
    const char *words;
  } cases[] = {
      {NULL, false, ""},
      {"", false, ""},
      {"FILE", true, ""},
      {"[FILE]", true, ""},
      {"DIR,...", true, ""},
      {"IN...", true, ""},
      {"PATH", true, ""},
      {"FILE.tsv", true, ""},
      {"FILES", false, ""},
      {"N", false, ""},
      {"[STAGE...]", false, " trainer evaluator packer"},
      {"STAGE|FILE", true, " trainer evaluator packer"},
      {"PROGRAM", false, " plm-packer plm-trainer plm-evaluator"},
      {"packer=N", false, " packer="},
      {"trainer=N", false, ""},
      {"a,b", false, ""},
      {"auto|never|PATH", true, " auto never"},
      {"az|za|Az|{z", false, " az za"},
      {"-f FILE", false, ""},
      {"[-f FILE] one", false, " one"},
      {"[-f] FILE", true, ""},
      {"one --flag DIR two", false, " one two"},
      {"one [--flag] two", false, " one two"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct plm_completions completions = plm_operand_completions(cases[i].operands);
    assert_string_equal(completions.words, cases[i].words);
    assert_int_equal(completions.files, cases[i].files);
  }
}

static void arguments_are_read(void **state)
{
  (void)state;
  const struct plm_option color = {0, "color", "WHEN", "when"}, file = {0, "in", "FILE|some", ""};
  assert_string_equal(plm_argument_completions(&color).words, " auto always never");
  assert_false(plm_argument_completions(&color).files);
  assert_string_equal(plm_argument_completions(&file).words, " some");
  assert_true(plm_argument_completions(&file).files);
}

static void words_are_quoted(void **state)
{
  (void)state;
  captured_begin(STDOUT_FILENO);
  plm_completion_quoted("it's [a:b] \\", "[]", "QUOTE");
  putchar('\n');
  plm_completion_function(&program);
  assert_string_equal(captured_end(), "itQUOTEs \\[a:b\\] \\\nplm_some_thing");
}

/* Puts @KEYS@ in place of the keys of all settings, which are compared here. */
static void without_keys(const char *script, struct plm_text *text)
{
  struct plm_text keys = {0};
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  for (size_t i = 0; i < count; i++)
    plm_text_printf(&keys, "%s%s=", i > 0 ? " " : "", table[i].key);
  plm_text_puts(text, "");
  for (const char *next; (next = strstr(script, keys.data)) != NULL; script = next + keys.length) {
    plm_text_append(text, script, (size_t)(next - script));
    plm_text_puts(text, "@KEYS@");
  }
  plm_text_puts(text, script);
  plm_text_deinit(&keys);
}

static void compare(const char *shell)
{
  char name[64];
  struct plm_error error = {0};
  struct plm_text got = {0};
  captured_begin(STDOUT_FILENO);
  const plm_status status = plm_completion_print(&program, shell, &error);
  const plm_status second = plm_completion_print(&simple, shell, &error);
  without_keys(captured_end(), &got);
  assert_int_equal(status, PLM_OK);
  assert_int_equal(second, PLM_OK);
  snprintf(name, sizeof name, "common/cli/completion/%s", shell);
  expected_file(name, got.data);
  plm_text_deinit(&got);
}

static void each_shell_has_its_script(void **state)
{
  (void)state;
  compare("bash");
  compare("zsh");
  compare("fish");
}

static void other_shells_are_refused(void **state)
{
  (void)state;
  struct plm_error error = {0};
  assert_int_equal(plm_completion_print(&program, "csh", &error), PLM_USAGE);
  assert_string_equal(error.what, "\"csh\" is not bash, zsh or fish");
  assert_int_equal(plm_completion_print(&program, "", &error), PLM_USAGE);
  assert_string_equal(error.what, "which shell? Name bash, zsh or fish");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operands_are_read),        cmocka_unit_test(arguments_are_read),
      cmocka_unit_test(words_are_quoted),         cmocka_unit_test(each_shell_has_its_script),
      cmocka_unit_test(other_shells_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
