/* The fractions of --split: what is read, what is refused, and which hash belongs to which split.
 */
#include "tests/support/harness/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "stages/ingest/split_rule.h"

/* The hash whose place is this share of all hashes. */
static uint64_t hash_at(double unit)
{
  return (uint64_t)(unit * 0x1p53) << 11;
}

static void each_split_has_its_share(void **state)
{
  (void)state;
  struct plm_split_rule rule;
  assert_int_equal(plm_split_rule_parse("test=0.25,train=0.5,valid=0.25", &rule, NULL), PLM_OK);
  assert_int_equal(plm_split_rule_choose(&rule, 0), PLM_SPLIT_TRAIN);
  assert_int_equal(plm_split_rule_choose(&rule, hash_at(0.5) - 1), PLM_SPLIT_TRAIN);
  assert_int_equal(plm_split_rule_choose(&rule, hash_at(0.5)), PLM_SPLIT_VALID);
  assert_int_equal(plm_split_rule_choose(&rule, hash_at(0.75) - 1), PLM_SPLIT_VALID);
  assert_int_equal(plm_split_rule_choose(&rule, hash_at(0.75)), PLM_SPLIT_TEST);
  assert_int_equal(plm_split_rule_choose(&rule, UINT64_MAX), PLM_SPLIT_TEST);
  static const struct {
    const char *text;
    enum plm_split first, last;
  } whole[] = {{"train=1", PLM_SPLIT_TRAIN, PLM_SPLIT_TRAIN},
               {"valid=1,train=0", PLM_SPLIT_VALID, PLM_SPLIT_VALID},
               {"test=1", PLM_SPLIT_TEST, PLM_SPLIT_TEST},
               {"train=0.3,valid=0.7", PLM_SPLIT_TRAIN, PLM_SPLIT_VALID},
               {"train=0.1,valid=0.2,test=0.7000000005", PLM_SPLIT_TRAIN, PLM_SPLIT_TEST},
               {"train=0.9999999995", PLM_SPLIT_TRAIN, PLM_SPLIT_TRAIN}};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
    assert_int_equal(plm_split_rule_parse(whole[i].text, &rule, NULL), PLM_OK);
    assert_int_equal(plm_split_rule_choose(&rule, 0), whole[i].first);
    assert_int_equal(plm_split_rule_choose(&rule, UINT64_MAX), whole[i].last);
    for (int s = (int)whole[i].last; s < PLM_SPLIT_COUNT; s++) assert_true(rule.below[s] == 1.0);
  }
}

static void nonsense_is_refused(void **state)
{
  (void)state;
  static const struct {
    const char *text, *what;
  } wrong[] = {
      {"train", "--split: \"train\" is not NAME=FRACTION"},
      {"a_name_that_is_long=1", "--split: \"a_name_that_is_long=1\" is not NAME=FRACTION"},
      {"train=", "--split: \"\" is not a fraction from 0 to 1"},
      {"train=x", "--split: \"x\" is not a fraction from 0 to 1"},
      {"train=0.5x", "--split: \"0.5x\" is not a fraction from 0 to 1"},
      {"train=-0.1", "--split: \"-0.1\" is not a fraction from 0 to 1"},
      {"train=1.1", "--split: \"1.1\" is not a fraction from 0 to 1"},
      {"train=nan", "--split: \"nan\" is not a fraction from 0 to 1"},
      {"train=0.5,train=0.5", "--split names train twice"},
      {"train=0,valid=1,train=0", "--split names train twice"},
      {"train=0.5", "--split train=0.5: the fractions sum to 0.5 instead of 1"},
      {"train=0.6,valid=0.6", "--split train=0.6,valid=0.6: the fractions sum to 1.2 instead of 1"},
      {"train=0.999999998", "--split train=0.999999998: the fractions sum to 1 instead of 1"},
  };
  struct plm_split_rule rule;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct plm_error error = {0};
    if (plm_split_rule_parse(wrong[i].text, &rule, &error) != PLM_USAGE)
      fail_msg("%s was taken", wrong[i].text);
    assert_string_equal(error.what, wrong[i].what);
  }
  struct plm_error error = {0};
  assert_int_not_equal(plm_split_rule_parse("other=1", &rule, &error), PLM_OK);
  assert_non_null(strstr(error.what, "other"));
  char text[257];
  memset(text, ',', sizeof text); /* which is empty between its commas */
  memcpy(text, "train=1", 7);
  text[255] = '\0';
  assert_int_equal(plm_split_rule_parse(text, &rule, NULL), PLM_OK);
  text[255] = ',';
  text[256] = '\0';
  assert_int_equal(plm_split_rule_parse(text, &rule, &error), PLM_USAGE);
  assert_non_null(strstr(error.what, "...\" is too long"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_split_has_its_share),
      cmocka_unit_test(nonsense_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
