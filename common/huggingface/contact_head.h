/* The regression that predicts contacts from attention maps: esm.contact_head.regression of ESM-2
 * (Rao et al., "Transformer protein language models are unsupervised structure learners", ICLR
 * 2021). It is not a parameter of the model, but is kept beside the parameters. */
#ifndef PLM_COMMON_HUGGINGFACE_CONTACT_HEAD_H
#define PLM_COMMON_HUGGINGFACE_CONTACT_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/huggingface/model_folder.h"

struct plm_contact_head {
  float *weights; /* (layers, heads) */
  size_t count;
  float bias;
};

/* Reads it from one of the folder's weights files. PLM_NOT_FOUND: it has none. PLM_FORMAT: its
 * tensors have another shape or type than the model's layers and heads need. */
plm_status plm_contact_head_read(const struct plm_model_folder *folder, const char *file,
                                 struct plm_contact_head *head, struct plm_error *error);
void plm_contact_head_deinit(struct plm_contact_head *head);

#endif
