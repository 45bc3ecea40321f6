/* A model's parameters in safetensors files, under the names of doc/model.md: writing them, reading
 * them into host memory, loading them into a model. */
#ifndef PLM_COMMON_CHECKPOINT_PARAMETER_FILE_H
#define PLM_COMMON_CHECKPOINT_PARAMETER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/files/advance.h"
#include "common/base/status.h"
#include "common/checkpoint/carried_tensors.h"
#include "common/checkpoint/frozen_tensors.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/model.h"

/* Writes the shape of a parameter's tensor and returns its rank: (cols) for a vector, (rows, cols)
 * for a matrix. */
int plm_parameter_shape(const struct plm_parameter *parameter, uint64_t shape[PLM_TENSOR_MAX_RANK]);

/* Writes and fsyncs `values` (host, in the arena layout of `table`) as fp32 tensors. */
plm_status plm_parameters_write(const char *path, const struct plm_parameter *table, size_t count,
                                const float *values, struct plm_error *error);
/* The same, but frozen parameters are written as `frozen` has them (NULL or {0}: none is frozen,
 * and `values` has all), and tensors that are no parameters behind them, unchanged (NULL: none). */
plm_status plm_parameters_write_with(const char *path, const struct plm_parameter *table,
                                     size_t count, const float *values,
                                     const struct plm_frozen_tensors *frozen,
                                     const struct plm_carried_tensors *carried,
                                     struct plm_error *error);

/* Reads the tensors of a file, or of the shards of PATH.index.json if there is no such file, into
 * `values` (host, in the arena layout of `table`; the gaps between parameters are not written).
 * F32, BF16, F16 and F64 are converted to fp32. PLM_FORMAT if a parameter is missing, has another
 * shape or another dtype, or holds NaN or infinity, or if a tensor is left over: one that
 * tensor_names.h does not know. A tied model may store its table a second time as
 * lm_head.decoder.weight, but no other tensor of this name. */
plm_status plm_parameters_read(const char *path, const struct plm_parameter *table, size_t count,
                               float *values, struct plm_error *error);

/* The same, but the file may have any head, which is not read: the values of the table's head stay
 * as they are. */
plm_status plm_parameters_read_trunk(const char *path, const struct plm_parameter *table,
                                     size_t count, float *values, struct plm_error *error);

/* Checks that DIRECTORY/FILE has a tensor of the right shape for each parameter of the model, with
 * any head, and that the tensors whose shape depends on the number of heads have it
 * (tensor_names.h; also when a model is read). It reads no values. A model is only opened after
 * this check: a config.json that fits no weights then costs no memory. Errors as
 * plm_parameters_read's. */
plm_status plm_parameters_check(const char *directory, const char *file,
                                const struct plm_model_config *config, struct plm_error *error);
/* The same, but the file must also have the model's own head, as for plm_parameters_fetch. */
plm_status plm_parameters_check_whole(const char *directory, const char *file,
                                      const struct plm_model_config *config,
                                      struct plm_error *error);

/* Reads DIRECTORY/FILE as plm_parameters_read does, into *values: the caller frees them. advance
 * (may be NULL): told of the bytes of its tensors. PLM_NO_MEMORY */
plm_status plm_parameters_fetch(const char *directory, const char *file,
                                const struct plm_model *model, struct plm_advance *advance,
                                float **values, struct plm_error *error);
/* Reads it into the model, a tensor at a time, so it needs no memory for all values. After an
 * error, some of the model's weights may be the new ones. PLM_NO_MEMORY */
plm_status plm_parameters_load(const char *directory, const char *file, struct plm_model *model,
                               struct plm_advance *advance, struct plm_error *error);

/* What a weights file has besides the trunk. */
enum plm_weights_head {
  PLM_HEAD_LM,         /* the language model's head, lm_head.* */
  PLM_HEAD_CLASSIFIER, /* classifier.* or score.*: a model fine-tuned to predict labels of sequences
                          or of residues */
  PLM_HEAD_NONE        /* nothing: transformers' AutoModel, whose names also lack "plm." */
};
/* As plm_parameters_load, for readers that need only hidden states: the file may have any of these
 * heads, and *head says which. Unless it is the language model's, the model's head is not changed.
 */
plm_status plm_parameters_load_trunk(const char *directory, const char *file,
                                     struct plm_model *model, enum plm_weights_head *head,
                                     struct plm_advance *advance, struct plm_error *error);
/* Parts that are drawn as plm_model_initialise does. */
struct plm_new_parts {
  bool head;     /* whichever the file has */
  bool adapters; /* the file has none */
  uint64_t seed;
};
/* As plm_parameters_fetch, but new parts are not read. */
plm_status plm_parameters_fetch_with(const char *directory, const char *file,
                                     const struct plm_model *model,
                                     const struct plm_new_parts *parts, struct plm_advance *advance,
                                     float **values, struct plm_error *error);

/* Whether the table is that of a model with a head that predicts labels. */
bool plm_parameters_predict_labels(const struct plm_parameter *table, size_t count);

#endif
