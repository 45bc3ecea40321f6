/* modeling_plm.py, embedded. A program can therefore write a complete model folder without any file
 * beside it. */
#include "common/base/files/embedded_file.h"
#include "common/huggingface/huggingface.h"

PLM_EMBED(plm_huggingface_modeling, "common/huggingface/modeling_plm.py");
