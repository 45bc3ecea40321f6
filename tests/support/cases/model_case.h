/* A small model on the CPU (or on a GPU: device_case.h) with the weights of case_weights, and the
 * reference with the same weights. Errors end the process. */
#ifndef PLM_TESTS_SUPPORT_CASES_MODEL_CASE_H
#define PLM_TESTS_SUPPORT_CASES_MODEL_CASE_H

#include "common/model/model.h"
#include "tests/support/cases/case_batch.h"
#include "tests/support/reference/reference_model.h"

struct model_case {
  struct plm_model_config config;
  struct plm_model_options options;
  struct plm_loss_options loss;
  uint32_t window;
  struct plm_ops *ops;
  struct plm_model *model;
  struct plm_masks *masks;
  float *weights; /* host, the whole arena */
};

/* The smallest sensible model: width 64, two or four blocks, chunks of 128 tokens. */
struct plm_model_config model_case_small(enum plm_architecture architecture);
/* Opens a model with the weights of case_weights. precision as in plm_ops_cpu_open. */
void model_case_open(struct model_case *c, const struct plm_model_config *config,
                     const struct plm_model_options *options, int precision, uint64_t seed);
/* The same on a backend that the caller has opened; it is closed with the case. */
void model_case_open_on(struct model_case *c, struct plm_ops *ops,
                        const struct plm_model_config *config,
                        const struct plm_model_options *options, uint64_t seed);
void model_case_close(struct model_case *c);
/* Runs forward and backward with loss_scale and adds to the gradients. Returns the summed loss. */
double model_case_step(struct model_case *c, const struct case_batch *placed, float loss_scale);
/* Copies the gradient arena to the host; the caller frees it. */
float *model_case_gradients(struct model_case *c);
/* Zeroes the gradients, runs a step and returns them as model_case_gradients does. */
float *model_case_gradients_of(struct model_case *c, const struct case_batch *placed, double *loss);

/* The reference's loss and gradients (in an arena of doubles, laid out as the model's) at the same
 * weights. hidden and logits as in reference_model.h. */
double *model_case_reference(const struct model_case *c, const struct case_batch *placed,
                             double loss_scale, enum reference_fault fault, double *loss,
                             double *hidden, double *logits);

#endif
