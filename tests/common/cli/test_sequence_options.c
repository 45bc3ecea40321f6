/* The options about files of sequences. */
#include <string.h>

#include "common/cli/sequence_options.h"
#include "tests/support/harness/cmocka_all.h"

static const struct plm_option table[] = {
    {.name = "gaps", .argument = "WHAT", .help = "gaps"},
    {.name = "nucleotides", .help = "nucleotides"},
    {.name = "sequence-column", .argument = "NAME", .help = "the column"},
    {.name = "name-column", .argument = "NAME", .help = "the column"},
    {0},
};

/* Reads up to four words. */
static plm_status read_words(const char *const *words, struct plm_sequence_choices *choices,
                             struct plm_error *error)
{
  char copies[6][40], *argv[6] = {"program"};
  int argc = 1;
  struct plm_arguments arguments;
  for (; words[argc - 1] != NULL; argc++) {
    argv[argc] = strcpy(copies[argc], words[argc - 1]);
  }
  assert_int_equal(plm_arguments_parse(argc, argv, table, &arguments, error), PLM_OK);
  const plm_status status = plm_sequence_options_parse(&arguments, choices, error);
  if (status == PLM_OK && choices->sequence_column != NULL)
    assert_string_equal(choices->sequence_column, "s");
  if (status == PLM_OK && choices->name_column != NULL)
    assert_string_equal(choices->name_column, "n");
  plm_arguments_deinit(&arguments);
  return status;
}
#define READ(choices, error, ...) \
  read_words((const char *const[]){__VA_ARGS__, NULL}, choices, error)

static void options_are_choices(void **state)
{
  struct plm_sequence_choices choices;
  struct plm_error error = {0};
  (void)state;
  memset(&choices, 1, sizeof choices);
  assert_int_equal(read_words((const char *const[]){NULL}, &choices, &error), PLM_OK);
  assert_int_equal(choices.gaps, PLM_GAPS_REFUSE);
  assert_false(choices.nucleotides || choices.chains || choices.columns);
  assert_true(choices.sequence_column == NULL && choices.name_column == NULL);
  assert_int_equal(READ(&choices, &error, "--gaps", "keep"), PLM_OK);
  assert_int_equal(choices.gaps, PLM_GAPS_KEEP);
  assert_int_equal(READ(&choices, &error, "--gaps", "remove", "--nucleotides"), PLM_OK);
  assert_int_equal(choices.gaps, PLM_GAPS_REMOVE);
  assert_true(choices.nucleotides);
  assert_int_equal(READ(&choices, &error, "--sequence-column", "s"), PLM_OK);
  assert_true(choices.sequence_column != NULL && choices.name_column == NULL);
  assert_int_equal(READ(&choices, &error, "--name-column", "n"), PLM_OK);
  assert_true(choices.sequence_column == NULL && choices.name_column != NULL);
}

static void other_words_about_gaps_are_refused(void **state)
{
  static const char *const words[] = {"", "kee", "keeps", "removed", "refuse"};
  (void)state;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    struct plm_sequence_choices choices;
    struct plm_error error = {0};
    assert_int_equal(READ(&choices, &error, "--gaps", words[i]), PLM_USAGE);
    assert_non_null(strstr(error.what, "--gaps must be remove or keep, not \""));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_are_choices),
      cmocka_unit_test(other_words_about_gaps_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
