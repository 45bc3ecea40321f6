/* Schedules: what the rates of step s are. Pure functions of the configuration and the step.
 *
 * s counts from 0 here, as in model.md's formulas; people see s + 1.
 */
#ifndef PLM_TRAINER_SCHEDULE_H
#define PLM_TRAINER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config/config.h"

/* Factor of all learning rates, Muon's included: (s+1)/W during warm-up, then the named shape, all
 * of it times (1 - min_lr_fraction) plus min_lr_fraction. steps is S. Source: model.md. */
double plm_schedule_learning_rate(const struct plm_config_schedule *schedule, uint64_t steps,
                                  uint64_t s);

/* Linear from starting_mask_rate to mask_rate over mask_rate_steps. */
double plm_schedule_mask_rate(const struct plm_config_masking *masking, uint64_t s);

/* The sliding window in force, in tokens: max(128, 128 floor(w/128)) on the way from start to end,
 * end as written from step window_steps on. */
uint32_t plm_schedule_window(const struct plm_model_config *model, uint64_t s);

/* The window that a checkpoint after `step` steps carries: that of the step that led to it. */
uint32_t plm_schedule_checkpoint_window(const struct plm_model_config *model, uint64_t step);

/* Muon's momentum: 0.85 + (momentum - 0.85) min(1, s/momentum_warmup_steps). */
double plm_schedule_momentum(const struct plm_config_optimizer *optimizer, uint64_t s);

/* Decay of the weights' average after n earlier updates: min(decay, (1+n)/(10+n)). */
double plm_schedule_ema_decay(double decay, uint64_t n);

/* Whether step s of masked diffusion is still one of its mlm warm-up. */
bool plm_schedule_is_mlm(const struct plm_config_trainer *trainer, uint64_t s);

#endif
