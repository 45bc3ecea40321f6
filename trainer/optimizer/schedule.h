/* Schedules: pure functions of the configuration and the step, so that a resume only needs the
 * step.
 *
 * s counts from 0, as in the formulas of doc/training.md#schedules; metrics and messages show s
 * + 1.
 */
#ifndef PLM_TRAINER_OPTIMIZER_SCHEDULE_H
#define PLM_TRAINER_OPTIMIZER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

/* Factor f of all learning rates: (s+1)/W during warm-up, then the shape that schedule->name says;
 * returned as f (1 - min_lr_fraction) + min_lr_fraction. range_test has neither warm-up nor that
 * form: it grows from min_lr_fraction to 1 at the last step. steps is the run's number of steps. */
double plm_schedule_learning_rate(const struct plm_config_schedule *schedule, uint64_t steps,
                                  uint64_t s);

/* Linear from starting_mask_rate to mask_rate over mask_rate_steps. */
double plm_schedule_mask_rate(const struct plm_config_masking *masking, uint64_t s);

/* Sliding window of step s in tokens: w goes linearly from window_start to window_end, rounded to
 * max(128, 128 floor(w/128)). From step window_steps on it is window_end itself. */
uint32_t plm_schedule_window(const struct plm_model_config *model, uint64_t s);

/* Window in the config.json of the checkpoint after `step` steps: that of the last one of them. */
uint32_t plm_schedule_checkpoint_window(const struct plm_model_config *model, uint64_t step);

/* Muon's momentum: 0.85 + (momentum - 0.85) min(1, s/momentum_warmup_steps). */
double plm_schedule_momentum(const struct plm_config_optimizer *optimizer, uint64_t s);

/* Decay of the average of the weights after n earlier updates: min(decay, (1+n)/(10+n)). */
double plm_schedule_ema_decay(double decay, uint64_t n);

/* Whether step s trains by mlm: every step of mlm, and the warm-up of masked diffusion. */
bool plm_schedule_is_mlm(const struct plm_config_trainer *trainer, uint64_t s);

#endif
