/* The model of model.md a second time: plain, in double precision, attention with dense masks made
 * from the document tables, gradients by a tape. An oracle for tiny sizes. It shares no code with
 * common/model; parameters are looked up by name. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_MODEL_H
#define PLM_TESTS_SUPPORT_REFERENCE_MODEL_H

#include "common/model/model.h"
#include "tests/support/reference_tape.h"

struct reference_parameter {
  const char *name;
  int64_t rows, cols;
  double *value, *gradient; /* gradient is added to; NULL where no gradient is wanted */
};

struct reference_request {
  const struct plm_model_config *config;
  struct reference_parameter *parameters;
  size_t parameter_count;
  const struct plm_batch *batch;
  uint32_t window; /* in force */
  const struct plm_targets *targets;
  const struct plm_loss_options *loss;
  double loss_scale; /* of the gradients; 0: forward alone */
  enum reference_fault fault;
  double *hidden; /* (B, L, D) last hidden state, may be NULL */
  double *logits; /* (rows, V) capped, may be NULL */
};

/* The summed loss; parameter gradients of loss_scale times it are added. */
double reference_model_loss(const struct reference_request *request);

#endif
