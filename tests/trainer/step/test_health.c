/* Signs that a training has gone wrong. */
#include "trainer/step/health.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/config/config.h"
#include "tests/support/harness/captured.h"
#include "tests/support/harness/cmocka_all.h"

static struct plm_health health;
static struct plm_config_trainer trainer;

static int begin(void **state)
{
  (void)state;
  memset(&health, 0, sizeof health);
  trainer =
      (struct plm_config_trainer){.objective = PLM_OBJECTIVE_MLM, .schedule = {.warmup_steps = 50}};
  return 0;
}

/* The composition of L and A in equal parts: its entropy is ln 2. */
static void count_composition(void)
{
  const struct plm_tokenizer *esm = plm_tokenizer_of(PLM_TOKENIZER_ESM);
  const uint8_t tokens[] = {(uint8_t)esm->cls, 4, 5, 5, 4, (uint8_t)esm->eos, (uint8_t)esm->pad,
                            (uint8_t)esm->pad};
  const struct plm_batch batch = {.chunks = 2, .max_length = 4, .token_bytes = 1, .tokens = tokens};
  plm_health_count(&health, PLM_TOKENIZER_ESM, &batch);
}

static const char *judge(uint64_t step, double loss, double norm, bool skipped)
{
  const struct plm_health_step looked = {step, loss, norm, skipped};
  return plm_health_judge(&health, &trainer, &looked);
}

static void the_entropy_is_that_of_the_residues(void **state)
{
  (void)state;
  assert_true(isnan(plm_health_entropy(&health)));
  count_composition();
  assert_true(fabs(plm_health_entropy(&health) - log(2)) < 1e-12);
  const uint16_t bytes[] = {65, 65, 256, 257, 258, 65, 65, 65};
  const struct plm_batch batch = {.chunks = 1, .max_length = 8, .token_bytes = 2, .tokens = bytes};
  begin(NULL);
  plm_health_count(&health, PLM_TOKENIZER_BYTE, &batch);
  assert_true(plm_health_entropy(&health) == 0);
  assert_int_equal(health.tokens[65], 5);
}

static void a_gradient_of_exactly_0_is_a_sign(void **state)
{
  (void)state;
  captured_begin(STDERR_FILENO);
  assert_string_equal(judge(1, 1, 0, false), "gradient is 0");
  assert_string_equal(judge(2, 1, 0, false), "gradient is 0"); /* not said again */
  assert_null(judge(3, 1, 1e-30, false));
  assert_null(judge(4, NAN, 0, true)); /* it is not known */
  assert_string_equal(judge(5, 1, 0, false), "gradient is 0");
  const char *said = captured_end();
  assert_non_null(strstr(said, "step 1: the gradient is exactly 0"));
  assert_null(strstr(said, "step 2:"));
  assert_null(strstr(said, "step 5:")); /* it was absent for a moment */
}

/* How often a sign that is seen every `apart` steps, in steps 1 to 2500, is logged. */
static int times_said(uint64_t apart)
{
  int count = 0;
  begin(NULL);
  captured_begin(STDERR_FILENO);
  for (uint64_t s = 1; s <= 2500; s++) judge(s, 1, s % apart == 1 % apart ? 0 : 1, false);
  for (const char *at = captured_end(); (at = strstr(at, "the gradient is")) != NULL; at++) count++;
  return count;
}

static void a_sign_is_said_every_1000_steps(void **state)
{
  (void)state;
  assert_int_equal(times_said(1), 3); /* in steps 1, 1001 and 2001 */
  assert_int_equal(times_said(7), 3); /* it comes and goes */
  assert_int_equal(times_said(100), 3);
  assert_int_equal(times_said(101), 25); /* each time, because it was absent for 100 steps */
}

/* Who clips already is not told to clip. */
static void the_remedy_fits_the_configuration(void **state)
{
  static const struct {
    double norm, percentile;
    const char *ending;
  } cases[] = {{0, 0, "lower learning rates or with trainer.clip\n"},
               {1, 0, "lower learning rates\n"},
               {0, 50, "lower learning rates\n"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    begin(NULL);
    trainer.clip_norm = cases[i].norm;
    trainer.clip_auto_percentile = cases[i].percentile;
    captured_begin(STDERR_FILENO);
    judge(1, 1, 0, false);
    assert_non_null(strstr(captured_end(), cases[i].ending));
  }
}

/* From step 301 on: 200 steps after twice the warm-up. */
static void a_loss_above_the_composition_is_a_sign_later(void **state)
{
  (void)state;
  count_composition();
  captured_begin(STDERR_FILENO);
  for (uint64_t s = 1; s <= 300; s++) assert_null(judge(s, 33.9, 1, false));
  assert_string_equal(judge(301, 33.9, 1, false), "loss above composition");
  const char *said = captured_end();
  assert_non_null(strstr(said,
                         "step 301: the loss (33.9000 in the last steps) is above the entropy "
                         "of the composition (0.6931)"));
  trainer.objective = PLM_OBJECTIVE_MASKED_DIFFUSION;
  assert_null(judge(302, 33.9, 1, false));
  begin(NULL);
  count_composition();
  for (uint64_t s = 1; s <= 400; s++) assert_null(judge(s, log(2) + 0.19, 1, false));
  begin(NULL);
  count_composition();
  captured_begin(STDERR_FILENO);
  for (uint64_t s = 1; s <= 300; s++) assert_null(judge(s, log(2) + 0.21, 1, false));
  assert_string_equal(judge(301, log(2) + 0.21, 1, false), "loss above composition");
  captured_end();
}

/* The mean is over about 50 steps; a loss that is not finite has no part in it. */
static void the_loss_is_a_running_mean(void **state)
{
  (void)state;
  trainer.objective = PLM_OBJECTIVE_CAUSAL;
  count_composition();
  for (uint64_t s = 1; s <= 300; s++) assert_null(judge(s, 0.5, 1, false));
  assert_null(judge(301, INFINITY, 1, false));
  begin(NULL);
  trainer.objective = PLM_OBJECTIVE_CAUSAL;
  count_composition();
  captured_begin(STDERR_FILENO);
  for (uint64_t s = 1; s <= 300; s++) assert_null(judge(s, 1, 1, false));
  assert_string_equal(judge(301, 51, 1, false), "loss above composition");
  assert_non_null(strstr(
      captured_end(), "step 301: the loss (2.0023 in the last steps) is above the entropy of the "
                      "composition (0.6931), so the model knows less than the frequency of "
                      "each residue; continue from an earlier checkpoint"));
}

static void skipped_updates_that_pile_up_are_a_sign(void **state)
{
  (void)state;
  for (uint64_t s = 1; s <= 2000; s++) assert_null(judge(s, 1, 1, s % 20 == 0));
  captured_begin(STDERR_FILENO);
  const char *last = NULL;
  for (uint64_t s = 2001; s <= 2012; s++) last = judge(s, NAN, NAN, true);
  assert_string_equal(last, "updates skipped");
  assert_non_null(strstr(captured_end(), "of the last 100 updates were skipped"));
}

/* The steps count less the older they are, so it is the eleventh in a row that makes ten. */
static void eleven_skipped_updates_in_a_row_are_a_sign(void **state)
{
  (void)state;
  for (uint64_t s = 1; s <= 10; s++) assert_null(judge(s, NAN, NAN, true));
  captured_begin(STDERR_FILENO);
  assert_string_equal(judge(11, NAN, NAN, true), "updates skipped");
  assert_non_null(strstr(captured_end(), "step 11: about 10 of the last 100 updates were skipped, "
                                         "because their loss or gradient was not finite; continue "
                                         "from an earlier checkpoint"));
  for (uint64_t s = 12; s <= 15; s++) assert_string_equal(judge(s, 1, 1, false), "updates skipped");
  assert_null(judge(16, 1, 1, false));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(the_entropy_is_that_of_the_residues, begin),
      cmocka_unit_test_setup(a_gradient_of_exactly_0_is_a_sign, begin),
      cmocka_unit_test_setup(a_sign_is_said_every_1000_steps, begin),
      cmocka_unit_test_setup(the_remedy_fits_the_configuration, begin),
      cmocka_unit_test_setup(a_loss_above_the_composition_is_a_sign_later, begin),
      cmocka_unit_test_setup(the_loss_is_a_running_mean, begin),
      cmocka_unit_test_setup(skipped_updates_that_pile_up_are_a_sign, begin),
      cmocka_unit_test_setup(eleven_skipped_updates_in_a_row_are_a_sign, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
