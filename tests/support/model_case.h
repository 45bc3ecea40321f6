/* A small model, opened on the CPU (or on a GPU: device_case.h) at the weights of model.md's
 * gradient checks, and the reference at the same weights. Everything asserts: this is for tests. */
#ifndef PLM_TESTS_SUPPORT_MODEL_CASE_H
#define PLM_TESTS_SUPPORT_MODEL_CASE_H

#include "common/model/model.h"
#include "tests/support/case_batch.h"
#include "tests/support/reference_model.h"

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

/* Whether products of bf16 are here: of the processor, and of the library that was chosen. */
bool model_case_has_bf16(void);
/* Opens with perturbed weights (seed). precision as plm_ops_cpu_open. */
void model_case_open(struct model_case *c, const struct plm_model_config *config,
                     const struct plm_model_options *options, int precision, uint64_t seed);
/* The same on a backend that was opened elsewhere; it closes with the case. */
void model_case_open_on(struct model_case *c, struct plm_ops *ops,
                        const struct plm_model_config *config,
                        const struct plm_model_options *options, uint64_t seed);
void model_case_close(struct model_case *c);
/* Masks, forward, backward with loss_scale; adds to the gradients. Returns the summed loss. */
double model_case_step(struct model_case *c, const struct case_batch *placed, float loss_scale);
/* The gradient arena on the host; the caller frees. */
float *model_case_gradients(struct model_case *c);
/* step from zero gradients. */
float *model_case_gradients_of(struct model_case *c, const struct case_batch *placed, double *loss);

/* The reference's loss and gradients (in an arena of doubles, laid out as the model's) at the same
 * weights. hidden and logits as in reference_model.h. */
double *model_case_reference(const struct model_case *c, const struct case_batch *placed,
                             double loss_scale, enum reference_fault fault, double *loss,
                             double *hidden, double *logits);

#endif
