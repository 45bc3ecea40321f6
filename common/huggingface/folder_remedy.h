/* What to do with a folder that has no safetensors, or does not exist. */
#ifndef PLM_COMMON_HUGGINGFACE_FOLDER_REMEDY_H
#define PLM_COMMON_HUGGINGFACE_FOLDER_REMEDY_H

#include <stdbool.h>

#include "common/base/status.h"

/* Gives an error about a folder without a model a hint:
 *
 * - it has weights in another format (.bin, .pt, .pth, .ckpt, .gguf): the command that converts
 *   them, or gets the model again
 * - it has only config.json: where to get the weights
 * - it does not exist, and its path looks like a name of the Hub: the command that downloads it
 *
 * False: none of these. */
bool plm_folder_remedy(const char *directory, struct plm_error *error);

#endif
