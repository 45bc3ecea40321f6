/* The options that `export` and `push` share: which checkpoint, and how it is exported. */
#ifndef PLM_STAGES_COMMANDS_EXPORT_OPTIONS_H
#define PLM_STAGES_COMMANDS_EXPORT_OPTIONS_H

#include "common/base/files/file.h"
#include "common/base/status.h"
#include "stages/commands/command.h"
#include "stages/export/export.h"

/* Rows of a table of options. */
/* clang-format off */
#define PLM_EXPORT_OPTIONS                                                          \
  {.name = "checkpoint", .argument = "DIR",                                         \
   .help = "the checkpoint (default: the newest of the run)"},                      \
  {.name = "step", .argument = "N", .help = "the run's checkpoint of this step"},   \
  {.name = "weights", .argument = "KIND",                                           \
   .help = "ema or model (default: ema if the checkpoint has them)"},               \
  {.name = "dtype", .argument = "TYPE",                                             \
   .help = "float32 or bfloat16 (default: float32; ESM-2 and ESM-C keep theirs)"},  \
  {.name = "license", .argument = "ID",                                             \
   .help = "licence of the model: apache-2.0, cc-by-4.0, … (from the Hub's list)"}, \
  {.name = "merge", .help = "fold the adapters (LoRA) into the weights"}
/* clang-format on */

/* The folder that these options name: --checkpoint; or, in the run that --run or the configuration
 * names, the checkpoint of --step, or without --step the newest checkpoint that verifies. */
plm_status plm_export_folder(const struct plm_command_context *context, char path[PLM_PATH_SIZE],
                             struct plm_error *error);

/* A request with these options. The caller fills in input and output. */
struct plm_export_request plm_export_request_of(const struct plm_arguments *arguments);

#endif
