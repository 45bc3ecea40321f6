/* Which key a misspelt one most likely means: for each key of the table. */
#include <stdio.h>
#include <string.h>

#include "common/config/key_suggestion.h"
#include "tests/support/harness/cmocka_all.h"

/* What is suggested for a word in a section; "" if nothing is. */
static const char *suggested(const char *prefix, const char *word)
{
  static char found[PLM_KEY_SIZE];
  static const struct plm_place nowhere = {.input = "here"};
  struct plm_config_problems *problems = plm_problems_new();
  plm_key_unknown(problems, nowhere, prefix, word);
  assert_int_equal(problems->count, 1);
  const char *mark = strstr(problems->list[0].text, "; did you mean \"");
  found[0] = '\0';
  if (mark != NULL) assert_int_equal(sscanf(mark, "; did you mean \"%255[^\"]\"?", found), 1);
  plm_config_problems_free(problems);
  return found;
}

/* The last part of a key, in a section that has nothing like it, means the first key of that name.
 */
static void a_key_may_be_in_another_section(void **state)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  (void)state;
  for (size_t i = 0; i < count; i++) {
    const char *dot = strrchr(table[i].key, '.'), *first = NULL;
    if (dot == NULL) continue;
    for (size_t j = 0; j < count && first == NULL; j++) {
      const char *other = strrchr(table[j].key, '.');
      if (other != NULL && strcmp(other, dot) == 0) first = table[j].key;
    }
    assert_string_equal(suggested("nowhere.", dot + 1), first);
  }
  assert_string_equal(suggested("nowhere.", "xyzzy"), "");
}

/* A key with a letter too many is the nearest one of its section. */
static void a_letter_too_many_does_not_matter(void **state)
{
  size_t count;
  const struct plm_setting *table = plm_settings(&count);
  (void)state;
  for (size_t i = 0; i < count; i++) {
    char prefix[PLM_KEY_SIZE], word[PLM_KEY_SIZE + 1];
    const char *dot = strrchr(table[i].key, '.');
    const char *own = dot != NULL ? dot + 1 : table[i].key;
    snprintf(prefix, sizeof prefix, "%.*s", (int)(own - table[i].key), table[i].key);
    snprintf(word, sizeof word, "%sq", own);
    assert_string_equal(suggested(prefix, word), own);
  }
}

/* A section is suggested like a key, and so is `include`, but only at the top level. */
static void words_of_the_top_level(void **state)
{
  (void)state;
  assert_string_equal(suggested("", "trainr"), "trainer");
  assert_string_equal(suggested("", "inclde"), "include");
  assert_string_equal(suggested("trainer.", "inclde"), "");
  assert_string_equal(suggested("trainer.", "include"), ""); /* it is said where it may stand */
}

/* The beginning of a key, up to an underscore, means the first one with it; otherwise it has to be
 * the only one. */
static void a_beginning_may_be_enough(void **state)
{
  (void)state;
  assert_string_equal(suggested("trainer.optimizer.", "lr"), "lr_hidden");
  assert_string_equal(suggested("metrics.", "prom"), "prometheus");
  assert_string_equal(suggested("metrics.", "zzz"), "");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_may_be_in_another_section),
      cmocka_unit_test(a_letter_too_many_does_not_matter),
      cmocka_unit_test(words_of_the_top_level),
      cmocka_unit_test(a_beginning_may_be_enough),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
