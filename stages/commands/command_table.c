/* The table of commands: the one place in which a new command is entered. */
#include <string.h>

#include "stages/commands/command.h"

/* clang-format off: one command on each line */
#define COMMANDS(X) \
  X(ingest)         \
  X(corpus)         \
  X(up)             \
  X(sweep)          \
  X(down)           \
  X(restart)        \
  X(scale)          \
  X(wait)           \
  X(join)           \
  X(ps)             \
  X(logs)           \
  X(metrics)        \
  X(checkpoints)    \
  X(runs)           \
  X(report)         \
  X(profile)        \
  X(evaluate)       \
  X(embed)          \
  X(generate)       \
  X(score)          \
  X(predict)        \
  X(probe)          \
  X(trace)          \
  X(export)         \
  X(push)           \
  X(keys)           \
  X(slurm)          \
  X(k8s)            \
  X(validate)       \
  X(doctor)         \
  X(config)         \
  X(manual)         \
  X(completion)
/* clang-format on */

#define DECLARE(name) extern const struct plm_command plm_command_##name;
COMMANDS(DECLARE)
#undef DECLARE

const struct plm_command *const plm_commands[] = {
#define ENTER(name) &plm_command_##name,
    COMMANDS(ENTER)
#undef ENTER
        NULL,
};

const struct plm_command *plm_command_find(const char *name)
{
  for (size_t i = 0; plm_commands[i] != NULL; i++) {
    if (strcmp(plm_commands[i]->name, name) == 0) return plm_commands[i];
  }
  return NULL;
}
