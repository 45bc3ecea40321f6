/* The weights of an export: the parameters in the type that was asked for, and beside published
 * weights the tensors that are no parameters, unchanged. */
#ifndef PLM_STAGES_EXPORT_EXPORT_WEIGHTS_H
#define PLM_STAGES_EXPORT_EXPORT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

struct plm_export_weights {
  const char *source; /* path of the file that they come from, or that its shards' index replaces */
  const struct plm_parameter *table;
  size_t count, elements;
  const struct plm_model_config *model; /* ESM-2 also has rotary frequencies; NULL: none */
  const char *dtype;   /* "float32", "bfloat16"; NULL: each tensor as the source has it */
  const bool *changed; /* (count) those that are written in float32 although dtype is NULL, because
                          they are not the source's; NULL: none */
};

/* The type of the source's embedding table as config.json names it: "float16". PLM_UNSUPPORTED: it
 * is none in which weights are stored. */
plm_status plm_export_source_dtype(const struct plm_export_weights *weights, const char **name,
                                   struct plm_error *error);

/* Writes the file at path. values: the parameters, fp32, in the arena layout. */
plm_status plm_export_weights_write(const struct plm_export_weights *weights, const float *values,
                                    const char *path, const struct plm_metadata_entry *metadata,
                                    size_t metadata_count, struct plm_error *error);

#endif
