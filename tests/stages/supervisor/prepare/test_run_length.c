/* What `up --dry-run` says about the length of a run. */
#include "stages/supervisor/prepare/run_length.h"

#include <math.h>
#include <stdlib.h>

#include "common/plan/shuffle.h"
#include "tests/support/corpora/known_split.h"
#include "tests/support/harness/cmocka_all.h"
#include "tests/support/harness/must.h"

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

/* Up to a million documents are counted. Of more, some windows say what the others hold. */
static void chunks_are_counted_or_estimated(void **state)
{
  static const struct {
    uint64_t documents;
    uint32_t window_groups;
    bool estimated;
  } rows[] = {{5000, 64, false},    {1000000, 64, false},  {3000000, 64, true},
              {3000000, 999, true}, {1500000, 5000, true}, {2000000, 7813, false}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plm_plan_parameters parameters = {.seed = 3,
                                                   .max_length = 512,
                                                   .alignment = 1,
                                                   .window_groups = rows[i].window_groups,
                                                   .shuffle = true};
    uint32_t *lengths = must(malloc(rows[i].documents * sizeof *lengths));
    struct plm_draws draws = plm_draws_begin(5, 0, 100);
    for (uint64_t d = 0; d < rows[i].documents; d++) lengths[d] = 30 + plm_draws_below(&draws, 600);
    const struct known_split split = {.lengths = lengths, .documents = rows[i].documents};
    struct plm_plan *plan = known_split_plan(&split, &parameters);
    struct known_reading reading = known_reading_open(&split, plan);
    const uint64_t windows = plm_plan_windows(plan);
    uint32_t *counts = must(malloc(windows * sizeof *counts));
    uint64_t exact = 0, chunks;
    bool estimated;
    assert_int_equal(known_split_chunks(&split, plan, 0, 0, windows, counts, NULL), PLM_OK);
    for (uint64_t w = 0; w < windows; w++) exact += counts[w];
    assert_int_equal(
        plm_run_length_chunks(plan, known_reading_group, &reading, &chunks, &estimated, NULL),
        PLM_OK);
    assert_int_equal(estimated, rows[i].estimated);
    if (!estimated) assert_int_equal(chunks, exact);
    assert_true(fabs((double)chunks / (double)exact - 1.0) < 0.005);
    known_reading_close(&reading);
    plm_plan_close(plan);
    free(counts);
    free(lengths);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_advice_depends_on_epochs_and_size),
                                     cmocka_unit_test(chunks_are_counted_or_estimated)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
