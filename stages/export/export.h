/* A checkpoint (or a Hugging Face folder of our model) as a Hugging Face folder of its own:
 * weights, config.json, modeling_plm.py, tokenizer and model card; no optimizer, nothing of the
 * run. */
#ifndef PLM_STAGES_EXPORT_EXPORT_H
#define PLM_STAGES_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/file.h"
#include "common/base/status.h"

struct plm_export_request {
  const char *source;  /* the folder to export */
  const char *output;  /* the folder to be */
  const char *weights; /* "ema", "model"; NULL: EMA weights where there are any */
  const char *dtype;   /* "float32", "bfloat16"; NULL: float32 */
  const char *license; /* of the Hub's list, or NULL */
  const char *name;    /* of the model; NULL: the output's */
  bool force;          /* what stands at output is moved aside */
};

struct plm_export_result {
  char output[PLM_PATH_SIZE]; /* absolute */
  char moved[PLM_PATH_SIZE];  /* what stood there went here; "" for nothing */
  bool checkpoint;            /* the source was one, of this step */
  uint64_t step, parameters, bytes;
  const char *weights, *dtype;
  bool evaluated; /* the card has metrics */
};

/* What can be said without writing anything: the choices of the request, and whether its source has
 * such weights. Errors as plm_export's. */
plm_status plm_export_check(const struct plm_export_request *request, struct plm_error *error);

/* PLM_USAGE: an unknown choice; PLM_NOT_FOUND: no such weights; PLM_EXISTS: output is taken; what
 * plm_model_folder_check says of the source; PLM_INTERRUPTED, PLM_TERMINATED: a stop signal.
 * Nothing is left behind unless it is PLM_OK. */
plm_status plm_export(const struct plm_export_request *request, struct plm_export_result *result,
                      struct plm_error *error);

#endif
