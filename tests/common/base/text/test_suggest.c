/* "did you mean ...": distances, and which of several names is offered. */
#include "tests/support/harness/cmocka_all.h"

#include <limits.h>
#include <string.h>

#include "common/base/text/suggest.h"

static void edits_are_counted(void **state)
{
  static const struct {
    const char *a, *b;
    unsigned distance;
  } cases[] = {
      {"", "", 0},
      {"", "abc", 3},
      {"abc", "", 3},
      {"abc", "abc", 0},
      {"abc", "abd", 1},
      {"abc", "ab", 1},
      {"abc", "abcd", 1},
      {"abc", "xabc", 1},
      {"abc", "acb", 1}, /* neighbours change places */
      {"ab", "ba", 1},
      {"abcd", "badc", 2},
      {"abc", "cba", 2},
      {"ca", "abc", 3},
      {"kitten", "sitting", 3},
      {"aab", "aba", 1},
      {"a", "b", 1},
      {"abcdef", "fedcba", 5},
      {"ab", "bc", 2},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (plm_edit_distance(cases[i].a, cases[i].b) != cases[i].distance)
      fail_msg("%s and %s: %u, not %u", cases[i].a, cases[i].b,
               plm_edit_distance(cases[i].a, cases[i].b), cases[i].distance);
}

static void names_of_64_letters_have_a_distance(void **state)
{
  (void)state;
  char longest[66], longer[67];
  memset(longest, 'a', sizeof longest);
  memset(longer, 'a', sizeof longer);
  longest[64] = longer[65] = '\0';
  assert_int_equal(plm_edit_distance(longest, "a"), 63);
  assert_int_equal(plm_edit_distance("a", longest), 63);
  assert_int_equal(plm_edit_distance(longest, longest), 0);
  assert_int_equal(plm_edit_distance(longer, "a"), UINT_MAX);
  assert_int_equal(plm_edit_distance("a", longer), UINT_MAX);
}

static void the_nearest_name_is_offered(void **state)
{
  static const struct {
    const char *word, *candidates[4], *best;
  } cases[] = {
      {"lr_rate", {"lr", "rate", NULL}, "rate"},
      {"stpes", {"steps", "seeds", NULL}, "steps"},
      {"stpes", {"seeds", "steps", NULL}, "steps"},
      /* at most half of the letters, rounded up */
      {"abcd", {"abxy", NULL}, "abxy"},
      {"abcd", {"axyz", NULL}, NULL},
      {"abcde", {"abxyz", NULL}, "abxyz"},
      {"abcde", {"awxyz", NULL}, NULL},
      {"abcdef", {"abcxyz", NULL}, "abcxyz"},
      {"abcdef", {"abwxyz", NULL}, NULL},
      /* two for a word of fewer than four */
      {"abc", {"axy", NULL}, "axy"},
      {"abc", {"xyz", NULL}, NULL},
      {"a", {"abc", NULL}, "abc"},
      {"a", {"abcd", NULL}, NULL},
      /* fewer edits than the name has letters */
      {"ab", {"xy", NULL}, NULL},
      {"ab", {"ax", NULL}, "ax"},
      {"abc", {"x", NULL}, NULL},
      /* equally near: the longer common prefix, then the first */
      {"abcd", {"xbcd", "abcx", "abxd", NULL}, "abcx"},
      {"abcd", {"abcx", "abcy", NULL}, "abcx"},
      {"abcd", {"abcx", "xbcd", NULL}, "abcx"},
      {"abcd", {"abxy", "abcd", "abcx", NULL}, "abcd"},
      {"", {"ab", NULL}, NULL},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct plm_suggestion suggestion = {.word = cases[i].word};
    for (const char *const *candidate = cases[i].candidates; *candidate != NULL; candidate++)
      plm_suggest(&suggestion, *candidate);
    const char *best = suggestion.best != NULL ? suggestion.best : "nothing";
    const char *expected = cases[i].best != NULL ? cases[i].best : "nothing";
    if (strcmp(best, expected) != 0)
      fail_msg("case %zu, %s: %s, not %s", i, cases[i].word, best, expected);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(edits_are_counted),
      cmocka_unit_test(names_of_64_letters_have_a_distance),
      cmocka_unit_test(the_nearest_name_is_offered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
