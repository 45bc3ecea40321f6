/* trainer/optimizer/schedule and trainer/optimizer/clip against values computed by hand. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/harness/cmocka_all.h"
#include "trainer/optimizer/clip.h"
#include "trainer/optimizer/schedule.h"

static void assert_near(double a, double b)
{
  assert_true(fabs(a - b) <= 1e-12 * (1 + fabs(b)));
}

static void learning_rate_follows_its_shape(void **state)
{
  (void)state;
  struct plm_config_schedule wsd = {
      .name = PLM_SCHEDULE_WSD, .warmup_steps = 20, .cooldown_steps = 100};
  assert_near(plm_schedule_learning_rate(&wsd, 300, 0), 1.0 / 20);
  assert_near(plm_schedule_learning_rate(&wsd, 300, 19), 1);
  assert_near(plm_schedule_learning_rate(&wsd, 300, 20), 1);
  assert_near(plm_schedule_learning_rate(&wsd, 300, 200), 1);
  assert_near(plm_schedule_learning_rate(&wsd, 300, 201), 0.99);
  assert_near(plm_schedule_learning_rate(&wsd, 300, 299), 0.01);
  wsd.min_lr_fraction = 0.1;
  assert_near(plm_schedule_learning_rate(&wsd, 300, 250), 0.5 * 0.9 + 0.1);
  wsd.cooldown_steps = 0;
  assert_near(plm_schedule_learning_rate(&wsd, 300, 299), 1);

  const struct plm_config_schedule linear = {.name = PLM_SCHEDULE_LINEAR, .warmup_steps = 10};
  assert_near(plm_schedule_learning_rate(&linear, 110, 9), 1);
  assert_near(plm_schedule_learning_rate(&linear, 110, 10), 1);
  assert_near(plm_schedule_learning_rate(&linear, 110, 60), 0.5);
  assert_near(plm_schedule_learning_rate(&linear, 110, 109), 0.01);

  const struct plm_config_schedule cosine = {.name = PLM_SCHEDULE_COSINE, .warmup_steps = 0};
  assert_near(plm_schedule_learning_rate(&cosine, 100, 0), 1);
  assert_near(plm_schedule_learning_rate(&cosine, 100, 50), 0.5);
  assert_near(plm_schedule_learning_rate(&cosine, 300, 100), 0.75);

  const struct plm_config_schedule warm = {.name = PLM_SCHEDULE_COSINE, .warmup_steps = 20};
  assert_near(plm_schedule_learning_rate(&warm, 100, 19), 1);
  assert_near(plm_schedule_learning_rate(&warm, 100, 20), 1);
  assert_near(plm_schedule_learning_rate(&warm, 100, 60), 0.5);
  assert_near(plm_schedule_learning_rate(&warm, 140, 60), 0.75);

  /* at the end and past it, the least rate */
  wsd.cooldown_steps = 100;
  for (uint64_t past = 0; past < 50; past += 7) {
    assert_near(plm_schedule_learning_rate(&wsd, 300, 300 + past), 0.1);
    assert_near(plm_schedule_learning_rate(&linear, 110, 110 + past), 0);
    assert_near(plm_schedule_learning_rate(&warm, 100, 100 + past), 0);
  }

  /* no warm-up, whatever warmup_steps says */
  const struct plm_config_schedule range = {
      .name = PLM_SCHEDULE_RANGE_TEST, .warmup_steps = 3, .min_lr_fraction = 1e-6};
  assert_near(plm_schedule_learning_rate(&range, 7, 0), 1e-6);
  assert_near(plm_schedule_learning_rate(&range, 7, 1), 1e-5);
  assert_near(plm_schedule_learning_rate(&range, 7, 5), 0.1);
  assert_true(plm_schedule_learning_rate(&range, 7, 6) == 1);
  assert_true(plm_schedule_learning_rate(&range, 7, 7) == 1);
  assert_true(plm_schedule_learning_rate(&range, 1, 0) == 1);
}

static void mask_rate_is_linear_then_constant(void **state)
{
  (void)state;
  const struct plm_config_masking masking = {
      .mask_rate = 0.3, .starting_mask_rate = 0.1, .mask_rate_steps = 100};
  assert_near(plm_schedule_mask_rate(&masking, 0), 0.1);
  assert_near(plm_schedule_mask_rate(&masking, 25), 0.15);
  assert_true(plm_schedule_mask_rate(&masking, 100) == 0.3);
  assert_true(plm_schedule_mask_rate(&masking, 100000) == 0.3);
  const struct plm_config_masking constant = {.mask_rate = 0.15, .starting_mask_rate = 0.05};
  assert_true(plm_schedule_mask_rate(&constant, 0) == 0.15);
}

static void window_moves_in_grains_of_128(void **state)
{
  (void)state;
  struct plm_model_config model = {.window_start = 100, .window_end = 1000, .window_steps = 9};
  static const uint32_t expected[] = {128, 128, 256, 384, 384, 512, 640, 768, 896, 1000, 1000};
  for (uint32_t s = 0; s < sizeof expected / sizeof *expected; s++)
    assert_int_equal(plm_schedule_window(&model, s), expected[s]);
  model.window_steps = 0;
  assert_int_equal(plm_schedule_window(&model, 0), 1000);
  model = (struct plm_model_config){.window_start = 1024, .window_end = 128, .window_steps = 7};
  assert_int_equal(plm_schedule_window(&model, 1), 896);
  assert_int_equal(plm_schedule_checkpoint_window(&model, 0), 1024);
  assert_int_equal(plm_schedule_checkpoint_window(&model, 1), 1024);
  assert_int_equal(plm_schedule_checkpoint_window(&model, 2), 896);
}

static void momentum_and_averaging_warm_up(void **state)
{
  (void)state;
  struct plm_config_optimizer optimizer = {.momentum = 0.95, .momentum_warmup_steps = 100};
  assert_near(plm_schedule_momentum(&optimizer, 0), 0.85);
  assert_near(plm_schedule_momentum(&optimizer, 50), 0.9);
  assert_near(plm_schedule_momentum(&optimizer, 500), 0.95);
  optimizer.momentum_warmup_steps = 0;
  assert_near(plm_schedule_momentum(&optimizer, 0), 0.95);
  assert_near(plm_schedule_ema_decay(0.999, 0), 0.1);
  assert_near(plm_schedule_ema_decay(0.999, 8), 0.5);
  assert_near(plm_schedule_ema_decay(0.999, 1000000), 0.999);
}

static void diffusion_may_begin_as_mlm(void **state)
{
  (void)state;
  struct plm_config_trainer trainer = {.objective = PLM_OBJECTIVE_MASKED_DIFFUSION,
                                       .masking = {.mlm_warmup_steps = 3}};
  assert_true(plm_schedule_is_mlm(&trainer, 2));
  assert_false(plm_schedule_is_mlm(&trainer, 3));
  trainer.objective = PLM_OBJECTIVE_MLM;
  assert_true(plm_schedule_is_mlm(&trainer, 2));
  assert_true(plm_schedule_is_mlm(&trainer, 3));
  trainer.objective = PLM_OBJECTIVE_CAUSAL;
  assert_false(plm_schedule_is_mlm(&trainer, 0));
}

static void percentile_interpolates(void **state)
{
  (void)state;
  double values[] = {4, 1, 3, 2};
  assert_near(plm_percentile(values, 4, 0), 1);
  assert_near(plm_percentile(values, 4, 100), 4);
  assert_near(plm_percentile(values, 4, 50), 2.5);
  assert_near(plm_percentile(values, 4, 10), 1.3);
  assert_near(plm_percentile(values, 1, 37), 1);
}

static void automatic_clipping_starts_at_the_tenth_step(void **state)
{
  (void)state;
  struct plm_clip clip = {0};
  for (uint64_t s = 0; s < 9; s++)
    assert_true(plm_clip_threshold(&clip, 0, 50, s, (double)s + 1) == 0);
  assert_near(plm_clip_threshold(&clip, 0, 50, 9, 10), 5.5); /* of 1 to 10, current norm included */
  assert_near(plm_clip_threshold(&clip, 0, 50, 10, INFINITY), 5.5);
  assert_int_equal(clip.count, 10);
  assert_near(plm_clip_threshold(&clip, 7, 0, 11, 1), 7);
  struct plm_clip none = {0}; /* all steps so far had no finite norm */
  assert_true(plm_clip_threshold(&none, 7, 50, 20, INFINITY) == 7);
  assert_true(plm_clip_threshold(&none, 7, 50, 21, 3) == 3);
}

static void history_is_the_last_1024_and_survives_a_save(void **state)
{
  (void)state;
  static struct plm_clip clip, restored;
  memset(&clip, 0, sizeof clip);
  double threshold = 0;
  for (uint64_t s = 0; s < 1500; s++)
    threshold = plm_clip_threshold(&clip, 0, 0.0001, s, (double)s);
  assert_int_equal(clip.count, PLM_CLIP_HISTORY);
  assert_near(threshold, 476 + 1023 * 1e-6); /* the oldest norm left is 1500 - 1024 */
  double saved[PLM_CLIP_HISTORY];
  const uint32_t count = plm_clip_export(&clip, saved);
  assert_true(saved[0] == 476 && saved[count - 1] == 1499);
  plm_clip_import(&restored, saved, count);
  for (uint64_t s = 1500; s < 3000; s++)
    assert_true(plm_clip_threshold(&clip, 0, 30, s, sin((double)s)) ==
                plm_clip_threshold(&restored, 0, 30, s, sin((double)s)));
}

/* The threshold that the device computes from inputs prepared before the norm is known equals that
 * of the history afterwards: while the history grows, when it is full, with ties, and at both ends.
 */
static void clipping_is_planned_ahead(void **state)
{
  (void)state;
  static struct plm_clip clip;
  const double percentiles[] = {0.0001, 1, 33.3, 50, 90, 99.99, 100};
  for (size_t p = 0; p < sizeof percentiles / sizeof *percentiles; p++) {
    memset(&clip, 0, sizeof clip);
    for (uint64_t s = 0; s < PLM_CLIP_HISTORY + 300; s++) {
      const double norm = s % 97 == 5 ? 1 : 1 + floor(40 * sin((double)(s * s))) / 16;
      const struct plm_update_clip step_clip = plm_clip_prepare(&clip, 0.25, percentiles[p], s);
      const double planned = plm_update_threshold(&step_clip, norm);
      assert_true(planned == plm_clip_threshold(&clip, 0.25, percentiles[p], s, norm));
    }
  }
}

static void clipping_scales_down_only(void **state)
{
  (void)state;
  assert_true(plm_update_clip_factor(0, 100) == 1);
  assert_true(plm_update_clip_factor(2, 1) == 1);
  assert_near(plm_update_clip_factor(1, 3), 1 / (3 + 1e-6));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(learning_rate_follows_its_shape),
      cmocka_unit_test(mask_rate_is_linear_then_constant),
      cmocka_unit_test(window_moves_in_grains_of_128),
      cmocka_unit_test(momentum_and_averaging_warm_up),
      cmocka_unit_test(diffusion_may_begin_as_mlm),
      cmocka_unit_test(percentile_interpolates),
      cmocka_unit_test(automatic_clipping_starts_at_the_tenth_step),
      cmocka_unit_test(history_is_the_last_1024_and_survives_a_save),
      cmocka_unit_test(clipping_is_planned_ahead),
      cmocka_unit_test(clipping_scales_down_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
