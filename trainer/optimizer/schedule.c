/* Schedules of the learning rate, mask rate, window, momentum and average. */
#include "trainer/optimizer/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* From 0 at the start to 1 at `steps` and later. */
static double ramp(uint64_t s, uint64_t steps)
{
  return s >= steps ? 1.0 : (double)s / (double)steps;
}

static double shape_after_warmup(const struct plm_config_schedule *schedule, uint64_t steps,
                                 uint64_t s)
{
  if (s >= steps) return 0; /* past the end, if trainer.steps was lowered */
  const double left = (double)(steps - s);
  if (schedule->name == PLM_SCHEDULE_WSD)
    return schedule->cooldown_steps == 0 ? 1.0 : fmin(1.0, left / (double)schedule->cooldown_steps);
  const double span = (double)(steps - schedule->warmup_steps);
  if (schedule->name == PLM_SCHEDULE_LINEAR) return left / span;
  return (1 + cos(pi * (double)(s - schedule->warmup_steps) / span)) / 2;
}

double plm_schedule_learning_rate(const struct plm_config_schedule *schedule, uint64_t steps,
                                  uint64_t s)
{
  if (schedule->name == PLM_SCHEDULE_RANGE_TEST)
    return s + 1 >= steps
               ? 1
               : pow(schedule->min_lr_fraction, (double)(steps - 1 - s) / (double)(steps - 1));
  const double factor = s < schedule->warmup_steps
                            ? (double)(s + 1) / (double)schedule->warmup_steps
                            : shape_after_warmup(schedule, steps, s);
  return factor * (1 - schedule->min_lr_fraction) + schedule->min_lr_fraction;
}

double plm_schedule_mask_rate(const struct plm_config_masking *masking, uint64_t s)
{
  if (s >= masking->mask_rate_steps) return masking->mask_rate;
  return masking->starting_mask_rate +
         (masking->mask_rate - masking->starting_mask_rate) * ramp(s, masking->mask_rate_steps);
}

uint32_t plm_schedule_window(const struct plm_model_config *model, uint64_t s)
{
  enum { GRAIN = 128 };
  if (s >= model->window_steps) return model->window_end;
  const double w =
      (double)model->window_start +
      ((double)model->window_end - (double)model->window_start) * ramp(s, model->window_steps);
  const uint32_t rounded = GRAIN * (uint32_t)floor(w / GRAIN);
  return rounded < GRAIN ? GRAIN : rounded;
}

uint32_t plm_schedule_checkpoint_window(const struct plm_model_config *model, uint64_t step)
{
  return plm_schedule_window(model, step == 0 ? 0 : step - 1);
}

double plm_schedule_momentum(const struct plm_config_optimizer *optimizer, uint64_t s)
{
  return 0.85 + (optimizer->momentum - 0.85) * ramp(s, optimizer->momentum_warmup_steps);
}

double plm_schedule_ema_decay(double decay, uint64_t n)
{
  return fmin(decay, (1 + (double)n) / (10 + (double)n));
}

bool plm_schedule_is_mlm(const struct plm_config_trainer *trainer, uint64_t s)
{
  return trainer->objective == PLM_OBJECTIVE_MLM ||
         (trainer->objective == PLM_OBJECTIVE_MASKED_DIFFUSION &&
          s < trainer->masking.mlm_warmup_steps);
}
