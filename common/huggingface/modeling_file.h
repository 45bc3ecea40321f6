/* The bytes of modeling_plm.py, carried by every program that writes checkpoints. */
#ifndef PLM_COMMON_HUGGINGFACE_MODELING_FILE_H
#define PLM_COMMON_HUGGINGFACE_MODELING_FILE_H

extern const char plm_modeling_file[]; /* NUL-terminated */

#endif
