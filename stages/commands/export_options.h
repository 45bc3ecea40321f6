/* What `export` and `push` share: how a checkpoint is named, and how it is exported. */
#ifndef PLM_STAGES_COMMANDS_EXPORT_OPTIONS_H
#define PLM_STAGES_COMMANDS_EXPORT_OPTIONS_H

#include "common/base/file.h"
#include "common/base/status.h"
#include "stages/commands/command.h"
#include "stages/export/export.h"

/* Rows of an options table. */
/* clang-format off */
#define PLM_EXPORT_OPTIONS                                                          \
  {.name = "checkpoint", .argument = "DIR",                                         \
   .help = "what to export; default: the run's newest checkpoint"},                 \
  {.name = "step", .argument = "N", .help = "the run's checkpoint of this step"},   \
  {.name = "weights", .argument = "KIND",                                           \
   .help = "ema or model (default ema where there are any)"},                       \
  {.name = "dtype", .argument = "TYPE", .help = "float32 (default) or bfloat16"},   \
  {.name = "license", .argument = "ID",                                             \
   .help = "of the model, for its card: apache-2.0, cc-by-4.0, … (the Hub's list)"}
/* clang-format on */

/* The folder those options name: --checkpoint, else of the run (--run, or the configuration's) the
 * checkpoint of --step, else the newest that verifies. */
plm_status plm_export_source(const struct plm_command_context *context, char path[PLM_PATH_SIZE],
                             struct plm_error *error);

/* The options in a request; source and output are the caller's to fill. */
struct plm_export_request plm_export_request_of(const struct plm_arguments *arguments);

#endif
