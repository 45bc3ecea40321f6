/* The model of doc/model.md a second time, in double precision, as an oracle for tiny sizes:
 * attention uses dense masks made from the document tables, gradients come from a tape. It shares
 * no code with common/model and looks up parameters by name. */
#ifndef PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_MODEL_H
#define PLM_TESTS_SUPPORT_REFERENCE_REFERENCE_MODEL_H

#include "common/model/model.h"
#include "tests/support/reference/reference_tape.h"

struct reference_parameter {
  const char *name;
  int64_t rows, cols;
  double *value, *gradient; /* the call adds to gradient, which may be NULL */
};

struct reference_request {
  const struct plm_model_config *config;
  struct reference_parameter *parameters;
  size_t parameter_count;
  const struct plm_batch *batch;
  uint32_t window; /* sliding window, tokens */
  const struct plm_targets *targets;
  const struct plm_loss_options *loss;
  double loss_scale; /* of the gradients; 0 runs only the forward pass */
  enum reference_fault fault;
  double *hidden; /* (B, L, D) last hidden state, may be NULL */
  double *logits; /* (rows, V) capped, may be NULL */
};

/* Returns the summed loss and adds the gradients of loss_scale times this sum. */
double reference_model_loss(const struct reference_request *request);

#endif
