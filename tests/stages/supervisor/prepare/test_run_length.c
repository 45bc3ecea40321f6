/* What `up --dry-run` says about the length of a run. */
#include "stages/supervisor/prepare/run_length.h"

#include "tests/support/harness/cmocka_all.h"

static void the_advice_depends_on_epochs_and_size(void **state)
{
  static const struct {
    double epochs, tokens, parameters;
    const char *wanted;
  } rows[] = {
      {4, 1000, 0,
       "up to 4 epochs, repeated data is nearly as good as new (Muennighoff et al., 2023): 4 "
       "epochs "
       "are 1,000 steps"},
      {4.01, 1000, 200.5,
       "beyond 4 epochs, repeated data teaches less and less (Muennighoff et al., 2023): 4 epochs "
       "are 997 steps"},
      {0.5, 1000, 50,
       "up to 4 epochs, repeated data is nearly as good as new (Muennighoff et al., 2023): 4 "
       "epochs "
       "are 8,000 steps\n                10 tokens a parameter; 20 (Hoffmann et al., 2022) would "
       "be "
       "25 parameters"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[PLM_ADVICE_SIZE];
    plm_run_length_advice(rows[i].epochs, rows[i].tokens, rows[i].parameters, 1000, text);
    assert_string_equal(text, rows[i].wanted);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_advice_depends_on_epochs_and_size)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
