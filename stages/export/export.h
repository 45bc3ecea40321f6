/* Writes a checkpoint, or a Hugging Face folder, as a new Hugging Face folder: weights,
 * config.json, tokenizer, model card, and modeling_plm.py unless transformers has the class (esm2,
 * esmc), but nothing of the optimizer or the run. */
#ifndef PLM_STAGES_EXPORT_EXPORT_H
#define PLM_STAGES_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/files/file.h"
#include "common/base/status.h"

struct plm_export_request {
  const char *input;   /* the folder to export */
  const char *output;  /* the folder to write */
  const char *weights; /* "ema" or "model"; NULL: EMA weights if there are any */
  const char
      *dtype; /* "float32" or "bfloat16"; NULL: float32, or for esm2 and esmc that of each tensor */
  const char *license;      /* from the Hub's list, or NULL */
  const char *name;         /* of the model; NULL: the name of the output folder */
  bool force;               /* move anything else at output aside */
  bool merge;               /* fold the adapters into the weights */
  bool adapter;             /* write only the adapters, in PEFT's format */
  const char *with_adapter; /* a folder of PEFT's to fold into the weights (with merge), or NULL */
};

struct plm_export_result {
  char output[PLM_PATH_SIZE]; /* absolute */
  char moved[PLM_PATH_SIZE];  /* where the folder at output was moved; "" if there was none */
  bool checkpoint;            /* the input was a checkpoint, of this step */
  uint64_t step, parameters, bytes;
  const char *weights, *dtype;
  bool evaluated; /* the card shows metrics */
};

/* Checks what can be checked without writing: the choices of the request, and whether the input
 * has the weights. The errors are those of plm_export. */
plm_status plm_export_check(const struct plm_export_request *request, struct plm_error *error);

/* Exports. On an error, nothing is left behind.
 *
 * - PLM_USAGE: an unknown choice
 * - PLM_CONFIG: the input has adapters and neither `merge` nor `adapter` is set, or the reverse
 * - any error of plm_peft_fold, about with_adapter
 * - PLM_NOT_FOUND: the input does not have these weights
 * - PLM_EXISTS: something else is at output
 * - PLM_INTERRUPTED, PLM_TERMINATED: a stop signal
 * - any error of plm_model_folder_check, about the input */
plm_status plm_export(const struct plm_export_request *request, struct plm_export_result *result,
                      struct plm_error *error);

#endif
