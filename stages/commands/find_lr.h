/* `up --find-lr`: a short run of its own whose learning rates grow from step to step, and the rates
 * that it suggests. */
#ifndef PLM_STAGES_COMMANDS_FIND_LR_H
#define PLM_STAGES_COMMANDS_FIND_LR_H

#include "common/config/config.h"
#include "stages/commands/command.h"

struct plm_find_lr {
  double low, high; /* of trainer.optimizer.lr_hidden; the other groups keep their ratio to it */
  unsigned long long steps;
};

/* Reads --lr-range and --lr-steps. PLM_USAGE. */
plm_status plm_find_lr_options(const struct plm_arguments *arguments, struct plm_find_lr *find,
                               struct plm_error *error);
/* Turns the configuration of a run into that of the test in `folder`. PLM_CONFIG if it cannot be
 * one. */
plm_status plm_find_lr_configure(const struct plm_find_lr *find, const char *folder,
                                 struct plm_config *config, struct plm_error *error);
/* Runs the test in a folder beside the run's, which it removes, and prints the result. config is
 * changed. PLM_INTERRUPTED or PLM_TERMINATED after a stop signal. */
plm_status plm_find_lr(const struct plm_command_context *context, const struct plm_find_lr *find,
                       struct plm_config *config, struct plm_error *error);

#endif
