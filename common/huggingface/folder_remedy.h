/* What to do with a folder whose weights are not safetensors. */
#ifndef PLM_COMMON_HUGGINGFACE_FOLDER_REMEDY_H
#define PLM_COMMON_HUGGINGFACE_FOLDER_REMEDY_H

#include <stdbool.h>

#include "common/base/status.h"

/* If the folder has weights in another format (.bin, .pt, .pth, .ckpt, .gguf), gives the error
 * a hint with the command that converts them, or says where to get them. False: it has none. */
bool plm_folder_remedy(const char *directory, struct plm_error *error);

#endif
